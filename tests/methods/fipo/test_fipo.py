"""FIPO by hand, and what is special about it."""

import numpy as np
import pytest
import torch

from oracle_support import by_hand, outcome
from tokenpo.methods.fipo import discounted


def test_by_hand() -> None:
    """decay 1 halves: d = log 1.1, log 0.9, log 1.2 give F = log 1.1 + log 0.9 / 2 + log 1.2 / 4, log 0.9 + log 1.2 / 2
    and log 1.2: weights 1.1 · 0.9^½ · 1.2^¼ = 1.0922, 0.9 · 1.2^½ = 0.9859 and 1.2, in [1, 1.15]: 1.0922, 1, 1.15."""
    got = outcome("fipo", by_hand([[1.1, 0.9, 1.2], [1.0]], [1, 0]), decay=1.0, most=1.15)
    weights = [1.1 * 0.9**0.5 * 1.2**0.25, 1.0, 1.15]
    np.testing.assert_allclose(got.terms["weight"][0], weights, rtol=1e-12)
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    np.testing.assert_allclose(got.gradient[0], -a * np.array(weights) * [1.1, 0.9, 1.2] / 4, rtol=1e-12)


def test_a_wrong_token_far_up_is_not_weighed_up() -> None:
    """Ratio 5 > 4: its own log-ratio would give 1.2; wrong it is at most 1, right it keeps it."""
    got = outcome("fipo", by_hand([[5.0], [5.0]], [1, 0]))
    np.testing.assert_allclose(got.terms["weight"], [[1.2], [1.0]], rtol=1e-12)


def test_a_token_beyond_the_dual_clip_counts_in_no_sum() -> None:
    """Without the 3 the first weight is that of 1.1 alone."""
    got = outcome("fipo", by_hand([[1.1, 3.0], [1.0]], [1, 0]), dual=2.0)
    np.testing.assert_allclose(got.terms["weight"][0], [1.1, 1.0], rtol=1e-12)


@pytest.mark.parametrize("length", [1, 2, 7, 130])
def test_discounted_sums(length: int) -> None:
    x = torch.randn(3, length, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected, ahead = torch.empty_like(x), torch.zeros(3, dtype=torch.float64)
    for t in reversed(range(length)):
        ahead = x[:, t] + 0.9 * ahead
        expected[:, t] = ahead
    torch.testing.assert_close(discounted(x, 0.9), expected, rtol=1e-12, atol=1e-14)
