"""RAFT against its oracle and by hand."""

import numpy as np
import pytest

from oracle_support import by_hand, outcome


def test_by_hand() -> None:
    """Rewards 1, 0.5, -1: the likelihood of the first two, weighted; p_old = 1/4. Four tokens."""
    got = outcome("raft", by_hand([[2, 1.0], [0.5], [2]], [1, 0.5, -1]))
    total = np.log(1 / 2) + np.log(1 / 4) + 0.5 * np.log(1 / 8)
    assert got.value == pytest.approx(-total / 4, rel=1e-12)
    np.testing.assert_allclose(got.gradient, np.array([[-1, -1], [-0.5, 0], [0, 0]]) / 4, rtol=1e-12)
