"""Packed rows to [N, T] and back, by hand, and with their gradients."""

import pytest
import torch

from tokenpo.core.ops.masked import inside, unpacked


def test_by_hand() -> None:
    places = inside(torch.tensor([2, 0, 3]))
    assert places.tolist() == [[True, True, False], [False] * 3, [True] * 3]
    rows = unpacked(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), places)
    assert rows.tolist() == [[1, 2, 0], [0, 0, 0], [3, 4, 5]]


def test_back_again_with_holes_and_more_axes() -> None:
    places = torch.rand(4, 6) > 0.4
    values = torch.randn(int(places.sum()), 3)
    assert torch.equal(unpacked(values, places)[places], values)


def test_the_gradient_of_every_value_comes_back_to_its_place() -> None:
    places, values = inside(torch.tensor([3, 1])), torch.randn(4, requires_grad=True)
    weight = torch.tensor([[1.0, 2.0, 3.0], [4.0, 99.0, 99.0]])
    (unpacked(values, places) * weight).sum().backward()
    assert values.grad is not None and values.grad.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("count", [2, 4])
def test_values_that_are_not_as_many_as_places_are_an_error(count: int) -> None:
    with pytest.raises((RuntimeError, IndexError)):
        unpacked(torch.zeros(count), inside(torch.tensor([2, 1])))
