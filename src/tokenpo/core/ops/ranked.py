"""Nearest-rank quantiles of any number of values; `torch.quantile` interpolates and accepts at most 2^24.

-0 counts as +0; NaN ranks above +inf, as in `torch.sort`. Results carry no gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...base.errors import TokenPOError


def nearest_rank(q: float, count: int) -> int:
    """Rank of the quantile among `count` ascending values, counted from 0: round(q (count − 1)), halves to even.

    >>> [nearest_rank(q, 5) for q in (0.0, 0.8, 0.9)]
    [0, 3, 4]
    """
    if not 0.0 <= q <= 1.0:
        raise TokenPOError(f"quantile q = {q} lies outside [0, 1]")
    return round(q * (count - 1))


def quantile(x: Tensor, q: float) -> Tensor:
    """Nearest-rank quantile q in [0, 1] of x [M] of any float dtype, as a tensor [] of that dtype.

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
    """The value of x [M] with this rank in ascending order, counted from 0, as a tensor [].

    Raises:
        TokenPOError: no value has this rank.

    >>> smallest(torch.tensor([4.0, 1.0, 3.0]), 1)
    tensor(3.)
    """
    if not 0 <= rank < len(x):
        raise TokenPOError(f"rank {rank} lies outside 0 to {len(x) - 1}, the places of {len(x)} values")
    # Not `kthvalue`, whose time is quadratic for descending values.
    return x.detach().topk(rank + 1, largest=False, sorted=False).values.max() + 0.0


def largest(x: Tensor, mask: Tensor, count: int) -> Tensor:
    """Places [count], ascending, of the largest values of x [M] where mask [M] is true; of equal ones the earlier.

    NaN is left out. If there are fewer than `count` values, all are returned.

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
    """The quantile q of every row's true entries: [N, 1] of x [N, T]; +inf in a row without any.

    >>> row_quantile(torch.tensor([[4.0, 1.0, 3.0], [2.0, 9.0, 9.0]]), torch.tensor([[1, 1, 1], [1, 0, 0]]).bool(), 0.4)
    tensor([[3.],
            [2.]])
    """
    nearest_rank(q, 1)  # refuses q outside [0, 1]
    last = (mask.sum(1, keepdim=True) - 1).clamp(min=0)
    rank = (q * last.double()).round().long()
    return x.detach().masked_fill(~mask, torch.inf).sort(1).values.gather(1, rank)
