"""Bounds of importance ratios (the ratios are in tests/core/parts/test_surrogate.py), and the pessimistic clip.

KL estimators.
"""

import math

import pytest
import torch
from torch import Tensor

from tokenpo.core.ops import ratio
from tokenpo.core.ops.known_gradient import known
from tokenpo.core.ops.ratio import pessimistic
from tokenpo.core.parts import K3Within


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
    (+2.0, 1.5, None, 3.0, 2.0, False),  # on the upper bound: still inside
    (+2.0, 1.75, None, 3.0, 0.0, True),  # above: clipped, no gradient
    (+2.0, 9.0, DUAL, 3.0, 0.0, True),  # the dual clip is for negative advantages only
    (-2.0, 0.1, None, -1.5, 0.0, True),  # below: clipped
    (-2.0, 0.75, None, -1.5, -2.0, False),  # on the lower bound
    (-2.0, 1.75, None, -3.5, -2.0, False),  # above: not clipped without dual
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


def test_advantage_and_bounds_get_no_gradient() -> None:
    ratio, advantage, upper = (_tensor(x).requires_grad_() for x in ([0.5, 2.0], [1.0, 1.0], [1.5, 1.5]))
    pessimistic(ratio, advantage, _tensor([0.5, 0.5]), upper)[0].sum().backward()
    assert ratio.grad.tolist() == [1.0, 0.0] and advantage.grad is None and upper.grad is None


def test_a_dual_bound_is_as_exact_as_the_ratio() -> None:
    """-0.1 in float32 times 10 in float64: on the bound, not next to it."""
    ratio = _tensor([10.0]).requires_grad_()
    value, clipped = pessimistic(ratio, torch.tensor([-0.1]), 0.8, 1.2, dual=10.0)
    assert value.item() == 10.0 * torch.tensor(-0.1).double().item() and not clipped.item()


LN2 = math.log(2)


def test_a_distance_that_is_rounding_has_no_slope() -> None:
    """Two engines leave 1e-6 nats between the same policies: with a slope of ±1 their signs would be noise."""
    x = torch.tensor([1e-6, -1e-5, 0.0, 2e-5, -2e-5], dtype=torch.float64, requires_grad=True)
    value = ratio.absolute(x)
    value.sum().backward()
    assert value.tolist() == [1e-6, 1e-5, 0.0, 2e-5, 2e-5]
    assert x.grad.tolist() == [0.0, 0.0, 0.0, 1.0, -1.0]


def test_k3_is_exact_for_small_steps() -> None:
    """At x = 1e-4 in float32, eˣ − 1 − x loses everything; expm1 keeps x²/2 + x³/6 = 5.00017e-9 to 1e-3 of itself."""
    x = torch.tensor(1e-4, dtype=torch.float32, requires_grad=True)
    seen = ratio.k3(x)
    assert seen.item() == pytest.approx(5.00017e-9, rel=2e-3)
    seen.backward()  # eˣ − 1 in float32 is 1.00017e-4
    assert x.grad.item() == pytest.approx(1.000050e-4, rel=1e-6)


def test_k3_within_is_flat_where_a_bound_binds() -> None:
    """Reach ln 2, at most 0.2: at ln 2 the value 1 − ln 2 = 0.307 is cut to 0.2; −ln 2 gives ln 2 − 1/2 = 0.193; −3 is
    as far as −ln 2."""
    x = torch.tensor([LN2, -LN2, -3.0, 0.5], dtype=torch.float64, requires_grad=True)
    value = K3Within(LN2, 0.2)(x)
    value.sum().backward()
    assert value.tolist() == pytest.approx([0.2, LN2 - 0.5, LN2 - 0.5, math.exp(0.5) - 1.5], rel=1e-14)
    assert x.grad.tolist() == pytest.approx([0.0, -0.5, 0.0, math.exp(0.5) - 1], rel=1e-14)


def test_known_hands_out_what_it_was_given() -> None:
    a, b, idle = (torch.tensor([1.0, 2.0], requires_grad=x) for x in (True, True, False))
    value = known(torch.tensor(7.0), [a, None, idle, b], [torch.tensor([3.0, 5.0]), None, None, None])
    assert float(value.detach()) == 7
    (2 * value).backward()
    assert a.grad is not None and a.grad.tolist() == [6, 10]
    assert b.grad is None and idle.grad is None
