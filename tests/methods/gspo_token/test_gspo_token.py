"""GSPO-token by hand."""

import numpy as np

from oracle_support import by_hand, moves


def test_token_advantages_by_hand() -> None:
    """One response, ratios 1.21 and 1, s = 1.1, advantages 2 and -1: every token has the ratio s and its own A.

    J = (1.1 · 2 - 1.1 · 1) / 2, ∂J/∂lp_t = 1.1 A_t / 2.
    """
    sample = by_hand([[1.21, 1.0]], [1])
    moves("gspo_token", sample, -0.55, [[-1.1, 0.55]], advantage=np.array([[2.0, -1.0]]), low=0.2, high=0.2)
