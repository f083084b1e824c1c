"""RAFT++ against its oracle, by hand, and its reduction."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, ragged, run

OPTIONS = [{}, {"low": 0.1, "high": 0.4}]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", OPTIONS)
def test_is_its_oracle(seed: int, options: dict) -> None:
    agrees("raft_pp", ragged(seed, binary=seed % 2 == 0), **options)


def test_by_hand() -> None:
    """Rewards 1, 0.5, -1: ratios of the first two, weighted; 1.5 is clipped at 1.2. Four tokens."""
    got = run(tokenpo.method("raft_pp"), by_hand([[1.1, 1.5], [0.5], [2]], [1, 0.5, -1], [0, 0, 0]))
    assert got.value == pytest.approx(-(2.3 + 0.25) / 4, rel=1e-12)
    np.testing.assert_allclose(got.gradient, np.array([[-1.1, 0], [-0.25, 0], [0, 0]]) / 4, rtol=1e-12)


def test_on_policy_it_moves_like_raft() -> None:
    sample = ragged(0).on_policy()
    ours, raft = run(tokenpo.method("raft_pp"), sample), run(tokenpo.method("raft"), sample)
    np.testing.assert_allclose(ours.gradient, raft.gradient, rtol=1e-12, atol=1e-17)
