"""Sums, means, whitening and nearest-rank quantiles over the true entries of a mask, and rows without padding."""

import torch
from torch import Tensor

from ...base.errors import TokenPOError


def keep(x: Tensor, mask: Tensor) -> Tensor:
    """x where mask is true, else 0 even if x is NaN, in value and gradient; x broadcasts to the mask's shape."""
    return torch.where(mask, x, 0.0)


def mean(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of x over the true entries of mask: [] for dim=None, else x's shape with `dim` kept at size 1.

    >>> mean(torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[True, True, False]]))
    tensor(2.)
    """
    kept = keep(x, mask)
    if dim is None:
        return kept.sum() / mask.sum().clamp(min=1)
    return kept.sum(dim, keepdim=True) / mask.sum(dim, keepdim=True).clamp(min=1)


def whiten(x: Tensor, mask: Tensor) -> Tensor:
    """(x − mean) / √(var + 1e-8) of x [N, T] over the true entries of mask, variance with ddof 1; 0 elsewhere."""
    out, values = x.new_zeros(x.shape, dtype=torch.float64), x[mask].double()
    if len(values):
        centred, variance = deviations(values)
        out[mask] = centred / (variance + 1e-8).sqrt()
    return out


def deviations(x: Tensor) -> tuple[Tensor, Tensor]:
    """(x − mean [M], variance [] with ddof 1) of at least one value x [M]; exactly 0 where all are equal."""
    centred = x - x.min()
    centred = centred - centred.mean()
    return centred, centred.square().sum() / max(1, len(x) - 1)


def inside(lengths: Tensor) -> Tensor:
    """[N, T] bool, true on the first `lengths` [N] places of each row; T is the longest row."""
    return torch.arange(int(lengths.max()), device=lengths.device) < lengths[:, None]


def unpacked(values: Tensor, places: Tensor) -> Tensor:
    """[N, T, ...] with `values` [S, ...] at the true `places` [N, T], zeros elsewhere; keeps the graph."""
    out = values.new_zeros(*places.shape, *values.shape[1:])
    out[places] = values
    return out


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

    >>> quantile(torch.tensor([4.0, 1.0, 3.0, 2.0, 5.0]), 0.8)
    tensor(4.)
    """
    if x.dim() != 1 or not x.is_floating_point() or not len(x):
        raise TokenPOError(f"quantile needs a flat tensor of at least one float, got {x.dtype} of {list(x.shape)}")
    return smallest(x, nearest_rank(q, len(x)))


def smallest(x: Tensor, rank: int) -> Tensor:
    """The value of x [M] with this rank in ascending order, counted from 0, as a tensor [].

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
    nearest_rank(q, 1)  # rejects q outside [0, 1]
    last = (mask.sum(1, keepdim=True) - 1).clamp(min=0)
    rank = (q * last.double()).round().long()
    return x.detach().masked_fill(~mask, torch.inf).sort(1).values.gather(1, rank)
