"""CISPO by hand, and what is special about it."""

import numpy as np

from oracle_support import by_hand, moves


def test_by_hand() -> None:
    """Rewards 2, 1, 0: A = a, 0, -a with a = 1 / (1 + 1e-6), p_old = 1/4, lp = log(r / 4). Five tokens.

    1.1 counts 1.1 and 1.5 the cap 1.28; 0.5 counts 0.5 (no bound below) and 2 again 1.28: all move, A lp each.
    """
    a = 1 / (1 + 1e-6)
    lp = np.log(np.array([1.1, 1.5, 0.5, 2.0]) / 4)
    moves(
        "cispo",
        by_hand([[1.1, 1.5], [1.3], [0.5, 2.0]], [2, 1, 0]),
        -(1.1 * lp[0] + 1.28 * lp[1] - 0.5 * lp[2] - 1.28 * lp[3]),
        [[-1.1, -1.28], [0, 0], [0.5, 1.28]],
        unit=a / 5,
    )
