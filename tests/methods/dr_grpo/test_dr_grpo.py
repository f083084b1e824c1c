"""Dr. GRPO by hand, and what is special about it."""

import numpy as np
import pytest

from oracle_support import by_hand, outcome


def test_by_hand() -> None:
    """Rewards 2, 1, 0: A = 1, 0, -1 exactly. Row sums: 1.1 + 1.2 (clipped), 0, -0.8 (clipped) - 2.

    Divided by the longest response, 2: loss = -(2.3 - 2.8) / 2 / 3; by the constant 10: -(2.3 - 2.8) / 10 / 3.
    """
    sample = by_hand([[1.1, 1.5], [1.3], [0.5, 2.0]], [2, 1, 0])
    for options, length in (({}, 2), ({"length": 10}, 10)):
        got = outcome("dr_grpo", sample, **options)
        assert got.value == pytest.approx(0.5 / length / 3, rel=1e-12)
        expected = np.array([[-1.1, 0], [0, 0], [0, 2]]) / (3 * length)
        np.testing.assert_allclose(got.gradient, expected, rtol=1e-12)


def test_unit_spread_and_equal_lengths_make_it_grpo() -> None:
    """Rewards 2, 1, 0 have std 1: only GRPO's 1e-6 is left between them."""
    sample = by_hand([[1.1, 1.5], [0.9, 0.7], [0.5, 2.0]], [2, 1, 0])
    ours, grpo = outcome("dr_grpo", sample), outcome("grpo", sample)
    np.testing.assert_allclose(ours.gradient, grpo.gradient * (1 + 1e-6), rtol=1e-12)
    assert ours.value == pytest.approx(grpo.value * (1 + 1e-6), rel=1e-12)
