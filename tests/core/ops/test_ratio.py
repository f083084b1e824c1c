"""Bounds of importance ratios; the ratios themselves are in tests/core/parts/test_ratio.py."""

from __future__ import annotations

import math

import pytest
import torch

from tokenpo.core.ops import ratio


def test_log_ratio_is_bounded_on_both_sides() -> None:
    """Beyond ±20 nats the log-ratio stands still and so does its gradient; 20 itself is inside."""
    lp = torch.tensor([[-25.0, -20.0, 0.0, 20.0, 25.0]], dtype=torch.float64, requires_grad=True)
    seen = ratio.log_ratio(lp, torch.zeros_like(lp))
    assert seen.tolist() == [[-20, -20, 0, 20, 20]]
    seen.sum().backward()
    assert lp.grad.tolist() == [[0, 1, 1, 1, 0]]
    single = ratio.log_ratio(torch.tensor([1e6]), torch.tensor([-1e6])).exp()
    assert float(single) == pytest.approx(math.exp(20), rel=1e-6)


def test_the_product_is_bounded_on_both_sides() -> None:
    """15 + 15 and -15 - 15 are held at ±20, or at a floor; what is inside passes."""
    x = torch.tensor([[15.0, 15.0], [-15.0, -15.0], [15.0, -14.0]])
    mask = torch.ones_like(x, dtype=torch.bool)
    assert ratio.log_product(x, mask)[:, 0].tolist() == [20, -20, 1]
    assert ratio.log_product(x, mask, floor=-18.0)[:, 0].tolist() == [20, -18, 1]


def test_the_mean_of_no_ratio_is_one() -> None:
    nothing = torch.zeros(1, 2, dtype=torch.bool)
    assert ratio.geometric(torch.tensor([[0.5, -2.0]]), nothing).tolist() == [[1, 1]]
