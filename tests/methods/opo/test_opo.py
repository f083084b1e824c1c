"""OPO by hand, and what is special about it."""

import numpy as np
import pytest

from oracle_support import by_hand, moves, outcome, ragged


def test_by_hand() -> None:
    """Rewards 3, 0 of lengths 1, 2: the baseline is 3/3 = 1: A = 2, -1. p_old = 1/4, lp = log(r / 4). Three tokens."""
    moves(
        "opo",
        by_hand([[2], [0.5, 1]], [3, 0]),
        -(2 * np.log(1 / 2) - np.log(1 / 8) - np.log(1 / 4)),
        [[-2, 0], [1, 1]],
        unit=1 / 3,
    )


def test_the_tokens_of_a_group_balance() -> None:
    """Σ |o_i| A_i = 0 in every group."""
    sample = ragged(0)
    pull = outcome("opo", sample).gradient.sum(1)
    for g in set(sample.group):
        assert pull[sample.group == g].sum() == pytest.approx(0, abs=1e-15)
