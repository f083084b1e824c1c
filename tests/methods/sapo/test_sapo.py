"""SAPO by hand, and what is special about it."""

import numpy as np
import pytest

from oracle_support import by_hand, outcome, ragged


def test_by_hand() -> None:
    """Rewards 2, 1, 0: A = a, 0, -a with a = 1 / (1 + 1e-6). σ(log 3) = 3/4, 4 σ (1 - σ) = 3/4.

    Row 0: r = 1 + log 3 gates to 4 · 3/4 = 3 and moves by 3/4 r. Row 2 (τ = 1.05): r = 1 is (4 / 1.05) / 2.
    """
    a, r = 1 / (1 + 1e-6), 1 + np.log(3)
    got = outcome("sapo", by_hand([[r], [1.3], [1.0]], [2, 1, 0]))
    assert got.value == pytest.approx(-(3 - 2 / 1.05) * a / 3, rel=1e-12)
    np.testing.assert_allclose(got.gradient[:, 0], [-0.75 * r * a / 3, 0, a / 3], rtol=1e-12)


def test_wide_gates_have_the_gradient_of_an_unclipped_ratio() -> None:
    """τ → 0: the gate is 2/τ + (r - 1) + O(τ²), so only the value keeps a constant."""
    ours = outcome("sapo", ragged(0), tau_pos=1e-5, tau_neg=1e-5)
    plain = outcome("grpo", ragged(0), low=1.0, high=1e9)
    np.testing.assert_allclose(ours.gradient, plain.gradient, rtol=1e-6, atol=1e-15)
