"""STAPO by hand."""

import numpy as np

from oracle_support import by_hand, moves


def test_by_hand() -> None:
    """Rewards 1, 0: A = ±a, a = 0.5 / (sqrt 0.5 + 1e-6). p_old = 0.001, so p < 0.002 for r < 2.

    Rare tokens of row 0 have entropies 1, 2, 3, 4; their 0.75 quantile is round(2.25) = the third smallest, 3: 1 and 2
    are below it and go. 2.5 is not rare. Row 1 is blamed: its rare token stays. 4 of the 6 tokens are counted.
    """
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    entropy = [[2.0, 1, 4, 3, 0.5], [0.1]]
    sample = by_hand([[1.1, 1, 0.9, 1.2, 2.5], [1]], [1, 0], p_old=0.001, entropy=entropy)
    expected = [[0, 0, -0.9, -1.2, 0], [1, 0, 0, 0, 0]]
    moves("stapo", sample, -(0.9 + 1.2 + 1.28 - 1) * a / 4, np.array(expected) * a / 4)
