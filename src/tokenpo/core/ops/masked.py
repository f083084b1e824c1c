"""Sums, means and whitening over the true entries of a mask. Empty selections give 0, never NaN."""

from __future__ import annotations

import torch
from torch import Tensor


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
