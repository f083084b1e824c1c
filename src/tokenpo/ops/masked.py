"""Sums, means and ranks over the true entries of a mask. Empty selections give 0, never NaN."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import TokenPOError


def mean(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of x over the true entries of mask: [] for dim=None, else x's shape with `dim` kept at size 1.

    >>> mean(torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[True, True, False]]))
    tensor(2.)
    """
    kept = torch.where(mask, x, 0.0)
    if dim is None:
        return kept.sum() / mask.sum().clamp(min=1)
    return kept.sum(dim, keepdim=True) / mask.sum(dim, keepdim=True).clamp(min=1)


def quantile(x: Tensor, q: float) -> Tensor:
    """Nearest-rank quantile of a flat tensor x [M]: the k-th smallest with k = round(q (M-1)), halves to even.

    Exact at any size; `torch.quantile` refuses more than 2^24 values and interpolates.

    >>> quantile(torch.tensor([4.0, 1.0, 3.0, 2.0, 5.0]), 0.8)
    tensor(4.)
    """
    if x.dim() != 1 or x.numel() == 0:
        raise TokenPOError(f"quantile needs a flat tensor with at least one value, got shape {list(x.shape)}")
    if not 0.0 <= q <= 1.0:
        raise TokenPOError(f"quantile q = {q} lies outside [0, 1]")
    return torch.kthvalue(x, round(q * (x.numel() - 1)) + 1).values


def row_quantile(x: Tensor, mask: Tensor, q: float) -> Tensor:
    """The same quantile of every row's true entries: [N, 1] of x [N, T]; +inf in a row that has none.

    >>> row_quantile(torch.tensor([[4.0, 1.0, 3.0], [2.0, 9.0, 9.0]]), torch.tensor([[1, 1, 1], [1, 0, 0]]).bool(), 0.4)
    tensor([[3.],
            [2.]])
    """
    if not 0.0 <= q <= 1.0:
        raise TokenPOError(f"quantile q = {q} lies outside [0, 1]")
    ranked = x.masked_fill(~mask, torch.inf).sort(1).values
    rank = (q * (mask.sum(1, keepdim=True) - 1).clamp(min=0).double()).round().long()
    return ranked.gather(1, rank)
