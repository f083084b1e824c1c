"""RAFT against its oracle and by hand."""

from __future__ import annotations

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, ragged, run


@pytest.mark.parametrize("seed", range(2))
def test_is_its_oracle(seed: int) -> None:
    agrees("raft", ragged(seed, binary=seed % 2 == 0))


def test_by_hand() -> None:
    """Rewards 1, 0.5, -1: the likelihood of the first two, weighted; p_old = 1/4. Four tokens."""
    got = run(tokenpo.method("raft"), by_hand([[2, 1.0], [0.5], [2]], [1, 0.5, -1], [0, 0, 0]))
    total = np.log(1 / 2) + np.log(1 / 4) + 0.5 * np.log(1 / 8)
    assert got.value == pytest.approx(-total / 4, rel=1e-12)
    np.testing.assert_allclose(got.gradient, np.array([[-1, -1], [-0.5, 0], [0, 0]]) / 4, rtol=1e-12)
