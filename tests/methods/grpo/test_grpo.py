"""GRPO by hand, and what is special about it."""

import numpy as np
import pytest

from oracle_support import agrees, by_hand, moves, ragged


def test_by_hand() -> None:
    """Rewards 2, 1, 0: mean 1, std sqrt((1 + 0 + 1) / 2) = 1, so A = a, 0, -a with a = 1 / (1 + 1e-6).

    Row 0 (A > 0): 1.1 a, and 1.5 clipped to 1.2 a, mean 1.15 a. Row 1: 0. Row 2 (A < 0): 0.5 clipped to -0.8 a, and
    -2 a (no clip above for A < 0), mean -1.4 a. Loss = -(1.15 - 1.4) a / 3.
    """
    a = 1 / (1 + 1e-6)
    moves(
        "grpo",
        by_hand([[1.1, 1.5], [1.3], [0.5, 2.0]], [2, 1, 0]),
        0.25 * a / 3,
        [[-1.1 * a / 6, 0], [0, 0], [0, 2 * a / 6]],
    )


def test_kl_by_hand() -> None:
    """Equal rewards leave - β k3: u = π_ref/π = 0.5 gives k3 = 0.5 - log 0.5 - 1 and ∂k3/∂lp = 1 - 0.5."""
    moves("grpo", by_hand([[2.0], [1.0]], [1, 1]), 0.1 * (np.log(2) - 0.5) / 2, [[0.1 * 0.5 / 2], [0]], beta=0.1)


def test_at_the_bound_the_gradient_lives() -> None:
    """With both clips 0 and ratio 1 the two branches tie: the unclipped one's gradient counts."""
    sample = ragged(0).on_policy()
    agrees("grpo", sample, low=0.0, high=0.0)


def test_huge_ratios_stay_finite() -> None:
    """|lp - lp_old| beyond 20 is held at 20: value e^±20, no gradient."""
    sample = by_hand([[np.exp(30.0), 1.0], [np.exp(-30.0), 1.0]], [0, 1], p_old=0.5)
    got = agrees("grpo", sample)
    a = np.sqrt(0.5) / (1 + 1e-6 / np.sqrt(0.5))  # rewards 0, 1: std sqrt(1/2), A = ±0.5 / (std + 1e-6)
    assert got.value == pytest.approx((np.exp(20) * a + a - np.exp(-20) * a - a) / 4, rel=1e-12)
    assert got.gradient[0, 0] == got.gradient[1, 0] == 0
