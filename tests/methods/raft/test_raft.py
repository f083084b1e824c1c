"""RAFT by hand."""

import numpy as np

from oracle_support import by_hand, moves


def test_by_hand() -> None:
    """Rewards 1, 0.5, -1: the likelihood of the first two, weighted; p_old = 1/4. Four tokens."""
    total = np.log(1 / 2) + np.log(1 / 4) + 0.5 * np.log(1 / 8)
    moves("raft", by_hand([[2, 1.0], [0.5], [2]], [1, 0.5, -1]), -total, [[-1, -1], [-0.5, 0], [0, 0]], unit=1 / 4)
