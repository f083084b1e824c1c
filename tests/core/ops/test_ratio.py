"""Bounds of importance ratios (the ratios are in tests/core/parts/test_surrogate.py), and the pessimistic clip."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tokenpo.core.ops import ratio
from tokenpo.core.ops.ratio import pessimistic


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


LOW, HIGH, DUAL = 0.75, 1.5, 4.0


def _tensor(x: list[float]) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


# advantage, ratio, dual -> value, its derivative, clipped
BRANCHES = [
    (+2.0, 0.1, None, 0.2, 2.0, False),  # far below: the minimum takes the small ratio, so the gradient can repair it
    (+2.0, 0.75, None, 1.5, 2.0, False),  # on the lower bound
    (+2.0, 1.0, None, 2.0, 2.0, False),
    (+2.0, 1.5, None, 3.0, 2.0, False),  # on the upper bound: still inside
    (+2.0, 1.75, None, 3.0, 0.0, True),  # above: clipped, no gradient
    (+2.0, 9.0, DUAL, 3.0, 0.0, True),  # the dual clip is for negative advantages only
    (-2.0, 0.1, None, -1.5, 0.0, True),  # below: clipped
    (-2.0, 0.75, None, -1.5, -2.0, False),  # on the lower bound
    (-2.0, 1.0, None, -2.0, -2.0, False),
    (-2.0, 1.75, None, -3.5, -2.0, False),  # above: not clipped without dual
    (-2.0, 9.0, None, -18.0, -2.0, False),
    (-2.0, 3.5, DUAL, -7.0, -2.0, False),
    (-2.0, 4.0, DUAL, -8.0, -2.0, False),  # on the dual bound
    (-2.0, 9.0, DUAL, -8.0, 0.0, True),  # above it
    (0.0, 1.75, None, 0.0, 0.0, False),  # no advantage, so nothing is cut
    (0.0, 9.0, DUAL, 0.0, 0.0, False),
]


@pytest.mark.parametrize(("advantage", "r", "dual", "value", "slope", "cut"), BRANCHES)
def test_branch(advantage: float, r: float, dual: float | None, value: float, slope: float, cut: bool) -> None:
    ratio = _tensor([r]).requires_grad_()
    seen, clipped = pessimistic(ratio, _tensor([advantage]), LOW, HIGH, dual)
    assert (seen.item(), clipped.item()) == (value, cut)
    seen.backward()
    assert ratio.grad.item() == slope
    assert all(
        torch.equal(x, y)
        for x, y in zip(
            pessimistic(ratio.detach(), _tensor([advantage]), LOW, HIGH, dual), (seen, clipped), strict=True
        )
    )


@pytest.mark.parametrize("dual", [None, DUAL])
def test_is_ppos_minimum(dual: float | None) -> None:
    """Against torch's gradient, on a grid that avoids ties (where its minimum splits the gradient)."""
    r = torch.linspace(0.013, 6.013, 241, dtype=torch.float64)
    for a in (-2.5, -1e-9, 1e-9, 2.5):
        advantage = torch.full_like(r, a)
        mine, theirs = r.clone().requires_grad_(), r.clone().requires_grad_()
        objective = torch.minimum(theirs * advantage, theirs.clamp(LOW, HIGH) * advantage)
        if dual is not None and a < 0:
            objective = torch.maximum(objective, dual * advantage)
        seen, clipped = pessimistic(mine, advantage, LOW, HIGH, dual)
        torch.testing.assert_close(seen, objective, rtol=1e-15, atol=0)
        seen.sum().backward()
        objective.sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-15, atol=0)
        assert torch.equal(clipped, theirs.grad == 0)


def test_bounds_per_token() -> None:
    r = _tensor([0.5, 0.5, 2.0, 2.0])
    a = _tensor([-1.0, -1.0, 1.0, 1.0])
    lower, upper = _tensor([0.25, 0.75, 0.5, 0.5]), _tensor([1.0, 1.0, 1.25, 3.0])
    value, clipped = pessimistic(r, a, lower, upper)
    assert value.tolist() == [-0.5, -0.75, 1.25, 2.0]
    assert clipped.tolist() == [False, True, True, False]


def test_bounds_of_another_precision_and_bounds_that_do_not_bind() -> None:
    """Bounds take the ratio's dtype; an infinite one is none: no 0 times infinity."""
    ratio, advantage = _tensor([0.5, 1.5, 30.0, 3.0]), torch.tensor([-1.0, 1.0, -1.0, 0.0])
    upper = torch.tensor([1.25, float("inf"), 1.25, 1.25])
    value, _ = pessimistic(ratio, advantage, torch.full((4,), 0.75), upper, dual=float("inf"))
    assert value.dtype == torch.float64 and value.tolist() == [-0.75, 1.5, -30.0, 0.0]
    value, clipped = pessimistic(ratio, advantage.double(), float("-inf"), float("inf"), dual=float("inf"))
    assert value.tolist() == [-0.5, 1.5, -30.0, 0.0] and not clipped.any()


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float64), (torch.float64, torch.float32)])
def test_ratio_and_advantage_of_two_precisions(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    ratio = torch.tensor([1.0, 4.0, 8.0], dtype=dtypes[0]).requires_grad_()
    value, clipped = pessimistic(ratio, torch.tensor([1.0, 2.0, -1.0], dtype=dtypes[1]), LOW, HIGH, DUAL)
    assert value.dtype == torch.float64 and value.tolist() == [1.0, 3.0, -4.0]
    assert clipped.tolist() == [False, True, True]
    value.sum().backward()
    assert ratio.grad.tolist() == [1.0, 0.0, 0.0]


def test_advantage_and_bounds_get_no_gradient() -> None:
    ratio, advantage, upper = (_tensor(x).requires_grad_() for x in ([0.5, 2.0], [1.0, 1.0], [1.5, 1.5]))
    pessimistic(ratio, advantage, _tensor([0.5, 0.5]), upper)[0].sum().backward()
    assert ratio.grad.tolist() == [1.0, 0.0] and advantage.grad is None and upper.grad is None


def test_a_dual_bound_is_as_exact_as_the_ratio() -> None:
    """-0.1 in float32 times 10 in float64: on the bound, not next to it."""
    ratio = _tensor([10.0]).requires_grad_()
    value, clipped = pessimistic(ratio, torch.tensor([-0.1]), 0.8, 1.2, dual=10.0)
    assert value.item() == 10.0 * torch.tensor(-0.1).double().item() and not clipped.item()
