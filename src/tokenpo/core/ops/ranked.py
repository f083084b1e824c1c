"""Nearest-rank quantiles: exact at any size, where `torch.quantile` interpolates and refuses more than 2^24 values.

Zeros of either sign are one value, +0; NaN is above +inf, as for `torch.sort`. Nothing carries a gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...base.errors import TokenPOError


def nearest_rank(q: float, count: int) -> int:
    """Which of `count` values in ascending order, from 0, is their quantile: round(q (count − 1)), halves to even.

    >>> [nearest_rank(q, 5) for q in (0.0, 0.8, 0.9)]
    [0, 3, 4]
    """
    if not 0.0 <= q <= 1.0:
        raise TokenPOError(f"quantile q = {q} lies outside [0, 1]")
    return round(q * (count - 1))


def quantile(x: Tensor, q: float) -> Tensor:
    """Nearest-rank quantile of a flat tensor x [M] of floats, as a tensor [] of its dtype.

    Args:
        x: [M] of any float dtype.
        q: in [0, 1].

    Raises:
        TokenPOError: x is not flat, not of floats or empty, or q lies outside [0, 1].

    >>> quantile(torch.tensor([4.0, 1.0, 3.0, 2.0, 5.0]), 0.8)
    tensor(4.)
    """
    if x.dim() != 1 or not x.is_floating_point():
        raise TokenPOError(f"quantile needs a flat tensor of floats, got {x.dtype} of shape {list(x.shape)}")
    if not len(x):
        raise TokenPOError("quantile needs a flat tensor with at least one value, got shape [0]")
    return smallest(x, nearest_rank(q, len(x)))


def smallest(x: Tensor, rank: int) -> Tensor:
    """The value of x [M] that has the given place, from 0, in ascending order: tensor [].

    Raises:
        TokenPOError: there is no such place.

    >>> smallest(torch.tensor([4.0, 1.0, 3.0]), 1)
    tensor(3.)
    """
    if not 0 <= rank < len(x):
        raise TokenPOError(f"rank {rank} lies outside 0 to {len(x) - 1}, the places of {len(x)} values")
    # Not `kthvalue`, which takes the square of the number of values where they descend.
    return x.detach().topk(rank + 1, largest=False, sorted=False).values.max() + 0.0


def largest(x: Tensor, mask: Tensor, count: int) -> Tensor:
    """Places [count], ascending, of the largest values of x [M] where mask [M] is true; of equal ones the earlier.

    Args:
        x: [M] of any float dtype; NaN counts as nothing.
        mask: [M] bool.
        count: 1 or more; all there are, where they are fewer.

    >>> largest(torch.tensor([2.0, 3.0, 9.0, 2.0]), torch.tensor([True, True, False, True]), 2)
    tensor([0, 1])
    """
    places = (mask & ~x.isnan()).nonzero()[:, 0]
    if len(places) <= count:
        return places
    values = x[places]
    least = smallest(values, len(values) - count)
    kept = values > least
    ties = (values == least).nonzero()[:, 0]
    kept[ties[: count - int(kept.sum())]] = True
    return places[kept]


def row_quantile(x: Tensor, mask: Tensor, q: float) -> Tensor:
    """The same quantile of every row's true entries: [N, 1] of x [N, T]; +inf in a row that has none.

    >>> row_quantile(torch.tensor([[4.0, 1.0, 3.0], [2.0, 9.0, 9.0]]), torch.tensor([[1, 1, 1], [1, 0, 0]]).bool(), 0.4)
    tensor([[3.],
            [2.]])
    """
    nearest_rank(q, 1)  # refuses what is no share
    last = (mask.sum(1, keepdim=True) - 1).clamp(min=0)
    rank = (q * last.double()).round().long()
    return x.detach().masked_fill(~mask, torch.inf).sort(1).values.gather(1, rank)
