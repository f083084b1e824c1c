"""Importance ratios by hand: log-ratios ln 2, -ln 3 | ln 5, and the bound of 20 nats."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tokenpo.core.ops import ratio

OLD = torch.tensor([[-1.0, -2.0, -0.5], [-3.0, -1.0, -1.0]], dtype=torch.float64)
STEP = torch.tensor([[2.0, 1 / 3, 7.0], [5.0, 9.0, 9.0]], dtype=torch.float64).log()
MASK = torch.tensor([[True, True, False], [True, False, False]])


def _logprob() -> Tensor:
    return (OLD + STEP).requires_grad_()


def _close(seen: Tensor, expected: list[list[float]]) -> None:
    torch.testing.assert_close(seen.detach(), torch.tensor(expected, dtype=torch.float64), rtol=1e-13, atol=0)


def test_token_ratio() -> None:
    _close(ratio.log_ratio(_logprob(), OLD).exp(), [[2, 1 / 3, 7], [5, 9, 9]])


def test_importance_is_the_exponential() -> None:
    """r = 2, 1/3, 7 | 5, 9, 9, each of which is also its own derivative; the same without a graph."""
    lp = _logprob()
    seen = ratio.importance(lp, OLD)
    _close(seen, [[2, 1 / 3, 7], [5, 9, 9]])
    _close(ratio.importance(lp.detach(), OLD), [[2, 1 / 3, 7], [5, 9, 9]])
    seen.sum().backward()
    _close(lp.grad, [[2, 1 / 3, 7], [5, 9, 9]])


def test_importance_is_flat_beyond_its_bounds() -> None:
    """20 itself is inside."""
    lp = torch.tensor([[-25.0, -20.0, 20.0, 25.0]], dtype=torch.float64, requires_grad=True)
    least, most = math.exp(-20), math.exp(20)
    seen = ratio.importance(lp, torch.zeros_like(lp))
    _close(seen, [[least, least, most, most]])
    seen.sum().backward()
    _close(lp.grad, [[0, least, most, 0]])


def test_log_ratio_is_bounded_on_both_sides() -> None:
    """Beyond ±20 nats the log-ratio stands still and so does its gradient; 20 itself is inside."""
    lp = torch.tensor([[-25.0, -20.0, 0.0, 20.0, 25.0]], dtype=torch.float64, requires_grad=True)
    seen = ratio.log_ratio(lp, torch.zeros_like(lp))
    assert seen.tolist() == [[-20, -20, 0, 20, 20]]
    seen.sum().backward()
    assert lp.grad.tolist() == [[0, 1, 1, 1, 0]]


def test_geometric_is_the_root_of_the_product() -> None:
    """Row 0: sqrt(2/3) over its two tokens; row 1: 5. Padding neither counts nor hides: every column shows it."""
    g = (2 / 3) ** 0.5
    lp = _logprob()
    seen = ratio.geometric(ratio.log_ratio(lp, OLD), MASK)
    _close(seen, [[g, g, g], [5, 5, 5]])
    seen[:, 0].sum().backward()  # d s / d lp_t = s / |o|
    _close(lp.grad, [[g / 2, g / 2, 0], [5, 0, 0]])


def test_geometric_token_has_its_own_gradient() -> None:
    """The value of s_i everywhere; d s_it / d lp_t = s_i for its own token only, undivided by the length."""
    g = (2 / 3) ** 0.5
    lp = _logprob()
    seen = ratio.geometric_token(ratio.log_ratio(lp, OLD), lp, MASK)
    _close(seen, [[g, g, g], [5, 5, 5]])
    weight = torch.tensor([[1.0, 10.0, 0.0], [3.0, 0.0, 0.0]], dtype=torch.float64)
    (seen * weight).sum().backward()
    _close(lp.grad, [[g, 10 * g, 0], [15, 0, 0]])


def test_arithmetic_is_the_mean_of_the_ratios() -> None:
    """Row 0: (2 + 1/3) / 2 = 7/6; row 1: 5. d w / d lp_t = r_t / |o|."""
    lp = _logprob()
    seen = ratio.arithmetic(ratio.log_ratio(lp, OLD), MASK)
    _close(seen, [[7 / 6] * 3, [5] * 3])
    seen[:, 0].sum().backward()
    _close(lp.grad, [[1, 1 / 6, 0], [5, 0, 0]])


def test_product_of_the_ratios() -> None:
    """Row 0: 2/3, the 7 is padding; row 1: 5. d W / d lp_t = W."""
    lp = _logprob()
    seen = ratio.log_product(ratio.log_ratio(lp, OLD), MASK).exp()
    _close(seen, [[2 / 3] * 3, [5] * 3])
    seen[:, 0].sum().backward()
    _close(lp.grad, [[2 / 3, 2 / 3, 0], [5, 0, 0]])


def test_the_product_is_bounded_on_both_sides() -> None:
    """15 + 15 and -15 - 15 are held at ±20, or at a floor; what is inside passes."""
    x = torch.tensor([[15.0, 15.0], [-15.0, -15.0], [15.0, -14.0]])
    mask = torch.ones_like(x, dtype=torch.bool)
    assert ratio.log_product(x, mask)[:, 0].tolist() == [20, -20, 1]
    assert ratio.log_product(x, mask, floor=-18.0)[:, 0].tolist() == [20, -18, 1]


@pytest.mark.parametrize("form", ["geometric", "arithmetic"])
def test_a_row_without_tokens_is_finite(form: str) -> None:
    """No token: log mean 0, so s = 1; the arithmetic mean of nothing is 0."""
    nothing = torch.zeros_like(MASK)
    seen = getattr(ratio, form)(STEP, nothing)
    assert seen.unique().tolist() == [{"geometric": 1.0, "arithmetic": 0.0}[form]]


def test_bound_keeps_ratios_finite_in_float32() -> None:
    seen = ratio.log_ratio(torch.tensor([1e6]), torch.tensor([-1e6])).exp()
    assert float(seen) == pytest.approx(math.exp(20), rel=1e-6)
