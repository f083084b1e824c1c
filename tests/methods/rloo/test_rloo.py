"""RLOO against its oracle, by hand, and its reduction."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, ragged, run

OPTIONS = [{}, {"low": 0.1, "high": 0.4}]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", OPTIONS)
def test_is_its_oracle(seed: int, options: dict) -> None:
    agrees("rloo", ragged(seed, binary=seed % 2 == 0), **options)


def test_by_hand() -> None:
    """Rewards 3, 1, 2 against the mean of the other two: 3 - 1.5, 1 - 2.5, 2 - 2. 1.1, 1.5 clipped at 1.2; 1."""
    got = run(tokenpo.method("rloo"), by_hand([[1.1, 1.5], [1.0], [1.3]], [3, 1, 2], [0, 0, 0]))
    assert got.value == pytest.approx(-(2.3 * 1.5 - 1.5) / 4, rel=1e-12)
    np.testing.assert_allclose(got.gradient, np.array([[-1.1, 0], [1, 0], [0, 0]]) * 1.5 / 4, rtol=1e-12)


def test_in_groups_of_two_the_other_is_the_baseline() -> None:
    """A = ±(R_1 - R_2) without any scale: twice Dr. GRPO's, token by token."""
    sample = ragged(0)
    sample = sample.rows(np.flatnonzero(sample.group == 0))
    ours = run(tokenpo.method("rloo"), sample)
    np.testing.assert_allclose(np.unique(ours.terms["advantage"][sample.mask]), [-1, 1], rtol=1e-12)
    dr = run(tokenpo.method("dr_grpo"), sample)
    scale = 2 * len(sample.reward) * sample.mask.sum(1).max() / sample.mask.sum()
    np.testing.assert_allclose(ours.gradient, dr.gradient * scale, rtol=1e-12, atol=1e-17)
