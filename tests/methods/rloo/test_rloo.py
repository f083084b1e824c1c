"""RLOO by hand, and what is special about it."""

import numpy as np

from oracle_support import by_hand, moves, outcome, ragged


def test_by_hand() -> None:
    """Rewards 3, 1, 2 against the mean of the other two: 3 - 1.5, 1 - 2.5, 2 - 2. 1.1, 1.5 clipped at 1.2; 1."""
    moves(
        "rloo",
        by_hand([[1.1, 1.5], [1.0], [1.3]], [3, 1, 2]),
        -(2.3 * 1.5 - 1.5) / 4,
        np.array([[-1.1, 0], [1, 0], [0, 0]]) * 1.5 / 4,
    )


def test_in_groups_of_two_the_other_is_the_baseline() -> None:
    """A = ±(R_1 - R_2) without any scale: twice Dr. GRPO's, token by token."""
    sample = ragged(0)
    sample = sample.rows(np.flatnonzero(sample.group == 0))
    ours = outcome("rloo", sample)
    np.testing.assert_allclose(np.unique(ours.terms["advantage"][sample.mask]), [-1, 1], rtol=1e-12)
    dr = outcome("dr_grpo", sample)
    scale = 2 * len(sample.reward) * sample.mask.sum(1).max() / sample.mask.sum()
    np.testing.assert_allclose(ours.gradient, dr.gradient * scale, rtol=1e-12, atol=1e-17)
