"""REINFORCE++-baseline by hand, and what is special about it."""

import numpy as np

from oracle_support import by_hand, moves


def test_by_hand() -> None:
    """Rewards 3, 1 and a lone 7: x = 1, 1, -1, 0 over four tokens: mean 1/4, variance (9/16 · 2 + 25/16 + 1/16) / 3.

    1.1, 1.5 clipped at 1.2; 1; the lone token has A = -1/4 and 0.5 is held at 0.8.
    """
    s = np.sqrt(44 / 48 + 1e-8)
    expected = np.array([[-1.1 * 0.75, 0], [1.25, 0], [0, 0]])
    moves(
        "reinforce_pp_baseline",
        by_hand([[1.1, 1.5], [1.0], [0.5]], [3, 1, 7], [0, 0, 1]),
        -(2.3 * 0.75 - 1.25 - 0.8 * 0.25) / s / 4,
        expected / s / 4,
    )


def test_the_penalty_is_a_square() -> None:
    """Equal rewards leave β (log u)² / 2 at u = π_ref/π: 0.1 · (log 2)² / 2, moved by 0.1 log 2."""
    sample = by_hand([[1.0], [1.0]], [1, 1])
    reference = sample.logprob - np.array([[np.log(2)], [0]])
    moves(
        "reinforce_pp_baseline",
        sample.but(ref_logprob=reference),
        0.1 * np.log(2) ** 2 / 4,
        [[0.05 * np.log(2)], [0]],
        beta=0.1,
    )
