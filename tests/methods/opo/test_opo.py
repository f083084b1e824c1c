"""OPO against its oracle, by hand, and its reduction."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, ragged, run


@pytest.mark.parametrize("seed", range(2))
def test_is_its_oracle(seed: int) -> None:
    agrees("opo", ragged(seed, binary=seed % 2 == 0))


def test_by_hand() -> None:
    """Rewards 3, 0 of lengths 1, 2: the baseline is 3/3 = 1: A = 2, -1. p_old = 1/4, lp = log(r / 4). Three tokens."""
    got = run(tokenpo.method("opo"), by_hand([[2], [0.5, 1]], [3, 0], [0, 0]))
    assert got.value == pytest.approx(-(2 * np.log(1 / 2) - np.log(1 / 8) - np.log(1 / 4)) / 3, rel=1e-12)
    np.testing.assert_allclose(got.gradient, np.array([[-2, 0], [1, 1]]) / 3, rtol=1e-12)


def test_the_tokens_of_a_group_balance() -> None:
    """Σ |o_i| A_i = 0 in every group."""
    sample = ragged(0)
    pull = run(tokenpo.method("opo"), sample).gradient.sum(1)
    for g in set(sample.group):
        assert pull[sample.group == g].sum() == pytest.approx(0, abs=1e-15)


def test_equal_lengths_on_policy_move_like_dr_grpo() -> None:
    sample = ragged(0, equal_lengths=True).on_policy()
    ours, other = run(tokenpo.method("opo"), sample), run(tokenpo.method("dr_grpo"), sample)
    np.testing.assert_allclose(ours.gradient, other.gradient, rtol=1e-12, atol=1e-17)
