"""KL estimators where rounding or bounds matter, and gradients that are handed out rather than derived."""

from __future__ import annotations

import math

import pytest
import torch

from tokenpo.core.ops import kl
from tokenpo.core.ops.known_gradient import known
from tokenpo.core.parts import K3Within

LN2 = math.log(2)


def test_a_distance_that_is_rounding_has_no_slope() -> None:
    """Two engines leave 1e-6 nats between the same policies: with a slope of ±1 their signs would be noise."""
    x = torch.tensor([1e-6, -1e-5, 0.0, 2e-5, -2e-5], dtype=torch.float64, requires_grad=True)
    value = kl.absolute(x)
    value.sum().backward()
    assert value.tolist() == [1e-6, 1e-5, 0.0, 2e-5, 2e-5]
    assert x.grad.tolist() == [0.0, 0.0, 0.0, 1.0, -1.0]


def test_k3_is_exact_for_small_steps() -> None:
    """At x = 1e-4 in float32, eˣ − 1 − x loses everything; expm1 keeps x²/2 + x³/6 = 5.00017e-9 to 1e-3 of itself."""
    x = torch.tensor(1e-4, dtype=torch.float32, requires_grad=True)
    seen = kl.k3(x)
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


def test_known_leaves_its_gradients_as_they_are() -> None:
    """A leaf that accumulates must not write into what a second backward pass hands out again."""
    x, given = torch.zeros(2, requires_grad=True), torch.tensor([1.0, 2.0])
    value = known(torch.tensor(0.0), [x], [given])
    for _ in range(3):
        value.backward(retain_graph=True)
    assert given.tolist() == [1, 2]
    assert x.grad is not None and x.grad.tolist() == [3, 6]


def test_known_in_half_precision() -> None:
    x = torch.zeros(1, dtype=torch.bfloat16, requires_grad=True)
    (known(torch.tensor(0.0), [x], [torch.tensor([1.5], dtype=torch.bfloat16)]) * 2).backward()
    assert x.grad is not None and x.grad.dtype == torch.bfloat16 and float(x.grad) == 3


def test_known_of_an_elementwise_function() -> None:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = known(torch.tensor([10.0, 20.0, 30.0]), [x], [torch.tensor([0.0, 1.0, -2.0])])
    assert y.tolist() == [10, 20, 30]
    (y * torch.tensor([1.0, 5.0, 7.0])).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 5, -14]
