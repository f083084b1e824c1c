"""Whitening: mean 0 and variance 1 over tokens."""

from __future__ import annotations

import torch
from torch import Tensor

EPS = 1e-8


def whiten(x: Tensor, mask: Tensor) -> Tensor:
    """(x − mean) / √(var + 1e-8) of x [N, T] over the true entries of mask, variance with ddof 1; 0 elsewhere."""
    values = x[mask].double()
    out = x.new_zeros(x.shape, dtype=torch.float64)
    if not values.numel():
        return out
    # From the smallest value, so that equal values have a mean and a variance of exactly 0.
    centred = values - values.min()
    centred = centred - centred.mean()
    variance = centred.square().sum() / max(1, values.numel() - 1)
    out[mask] = centred / (variance + EPS).sqrt()
    return out
