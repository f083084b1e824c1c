"""Gradients that are handed out rather than derived."""

from __future__ import annotations

import torch

from tokenpo.core.ops.known_gradient import known


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
