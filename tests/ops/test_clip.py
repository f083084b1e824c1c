"""The pessimistic clip in every branch: its closed form against min(r A, clip(r) A), values and gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tokenpo.ops.clip import pessimistic

LOW, HIGH, DUAL = 0.75, 1.5, 4.0


def _tensor(x: list[float]) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


# advantage, ratio, dual -> the ratio that multiplies the advantage, and its derivative
BRANCHES = [
    (+1.0, 0.1, None, 0.1, 1.0),  # far below: the minimum takes the small ratio, so that the gradient can repair it
    (+1.0, 0.75, None, 0.75, 1.0),  # on the lower bound
    (+1.0, 1.0, None, 1.0, 1.0),
    (+1.0, 1.5, None, 1.5, 1.0),  # on the upper bound: still inside
    (+1.0, 1.75, None, 1.5, 0.0),  # above: clipped, no gradient
    (+1.0, 9.0, DUAL, 1.5, 0.0),  # the dual clip is for negative advantages only
    (-1.0, 0.1, None, 0.75, 0.0),  # below: clipped
    (-1.0, 0.75, None, 0.75, 1.0),  # on the lower bound
    (-1.0, 1.0, None, 1.0, 1.0),
    (-1.0, 1.75, None, 1.75, 1.0),  # above: not clipped without dual
    (-1.0, 9.0, None, 9.0, 1.0),
    (-1.0, 3.5, DUAL, 3.5, 1.0),
    (-1.0, 4.0, DUAL, 4.0, 1.0),  # on the dual bound
    (-1.0, 9.0, DUAL, 4.0, 0.0),  # above it
    (0.0, 1.75, None, 1.5, 0.0),  # no advantage: whatever it is, it multiplies 0
]


@pytest.mark.parametrize(("advantage", "r", "dual", "value", "slope"), BRANCHES)
def test_branch(advantage: float, r: float, dual: float | None, value: float, slope: float) -> None:
    ratio = _tensor([r]).requires_grad_()
    seen = pessimistic(ratio, _tensor([advantage]), LOW, HIGH, dual)
    assert seen.item() == value
    seen.backward()
    assert ratio.grad.item() == slope


@pytest.mark.parametrize("dual", [None, DUAL])
def test_is_ppos_minimum(dual: float | None) -> None:
    """min(r A, clip(r) A), and max(that, dual · A) where A < 0, on a grid that avoids ties (where torch.min splits)."""
    r = torch.linspace(0.013, 6.013, 241, dtype=torch.float64)
    for a in (-2.5, -1e-9, 1e-9, 2.5):
        advantage = torch.full_like(r, a)
        mine, theirs = r.clone().requires_grad_(), r.clone().requires_grad_()
        objective = torch.minimum(theirs * advantage, theirs.clamp(LOW, HIGH) * advantage)
        if dual is not None and a < 0:
            objective = torch.maximum(objective, dual * advantage)
        seen = pessimistic(mine, advantage, LOW, HIGH, dual) * advantage
        torch.testing.assert_close(seen, objective, rtol=1e-15, atol=0)
        seen.sum().backward()
        objective.sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-15, atol=0)


def test_bounds_per_token() -> None:
    """Each token has its own interval; a number and a tensor mix."""
    r = _tensor([0.5, 0.5, 2.0, 2.0])
    a = _tensor([-1.0, -1.0, 1.0, 1.0])
    lower, upper = _tensor([0.25, 0.75, 0.5, 0.5]), _tensor([1.0, 1.0, 1.25, 3.0])
    assert pessimistic(r, a, lower, upper).tolist() == [0.5, 0.75, 1.25, 2.0]
    assert pessimistic(r, a, 0.6, upper).tolist() == [0.6, 0.6, 1.25, 2.0]
    assert pessimistic(r, a, lower, 1.75).tolist() == [0.5, 0.75, 1.75, 1.75]


def test_keeps_the_dtype() -> None:
    for dtype in (torch.float32, torch.float64):
        assert pessimistic(torch.ones(2, dtype=dtype), torch.ones(2, dtype=dtype), 0.8, 1.2, 3.0).dtype == dtype


def test_bounds_of_another_precision() -> None:
    """Old policy in float32, current one in float64: the answer has the ratio's dtype, and no bound overflows."""
    ratio = torch.tensor([0.5, 1.5, 30.0], dtype=torch.float64)
    lower, upper = torch.full((3,), 0.75), torch.tensor([1.25, float("inf"), 1.25])
    advantage = torch.tensor([-1.0, 1.0, -1.0])
    seen = pessimistic(ratio, advantage, lower, upper)
    assert seen.dtype == torch.float64 and seen.tolist() == [0.75, 1.5, 30.0]


def test_bounds_that_do_not_bind() -> None:
    """An infinite dual clip is none, and a bound below 0 is one at 0: no 0 times infinity."""
    ratio, advantage = _tensor([0.5, 1.7, 9.0, 0.1]), _tensor([1.0, 1.0, -1.0, -1.0])
    seen = pessimistic(ratio, advantage, float("-inf"), float("inf"), dual=float("inf"))
    assert seen.tolist() == ratio.tolist()
