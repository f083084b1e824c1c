"""HAPO's normalised log-entropy ĥ in [−1, 1] (2509.16591): how uncertain a token is among all tokens of a batch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...base.errors import TokenPOError
from . import masked

EPS = 1e-8


class EntropyScale(NamedTuple):
    """The statistics that turn an entropy into a score; numbers, or tensors of shape [].

    Args:
        pivot: quantile of log H over the batch (log-nats).
        spread: root mean square of log H about the pivot.
        top: largest z-score, 0 if no token lies above the pivot.
        bottom: smallest z-score, 0 if no token lies below it.
    """

    pivot: Tensor | float
    spread: Tensor | float
    top: Tensor | float
    bottom: Tensor | float


def measure(entropy: Tensor, mask: Tensor, quantile: float) -> EntropyScale:
    """The scale of the entropies [N, T] (nats) where mask is true, as tensors [].

    Raises:
        TokenPOError: the mask is false everywhere.
    """
    values = entropy[mask].clamp(min=EPS).log()
    if values.numel() == 0:
        raise TokenPOError("the entropy scale needs at least one response token, the mask is empty")
    pivot = masked.quantile(values, quantile)
    raw = values - pivot
    spread = raw.square().mean().sqrt()
    safe = torch.where(spread > 0, spread, 1.0)
    return EntropyScale(pivot, spread, raw.max().clamp(min=0) / safe, raw.min().clamp(max=0) / safe)


def score(entropy: Tensor, scale: EntropyScale, *, negative_is_positive: bool = False) -> Tensor:
    """ĥ of entropies of any shape: z / top above the pivot, z / |bottom| below; 0 where the divisor is 0.

    `negative_is_positive` divides by bottom itself, as the authors' released code does, which makes ĥ ≥ 0.
    """
    z = _over(entropy.clamp(min=EPS).log() - scale.pivot, scale.spread)
    below = _over(z, scale.bottom)
    return torch.where(z > 0, _over(z, scale.top), below if negative_is_positive else -below)


def _over(x: Tensor, extent: Tensor | float) -> Tensor:
    """x / extent, or 0 where the extent is 0."""
    extent = torch.as_tensor(extent, dtype=x.dtype, device=x.device)
    return torch.where(extent == 0, 0.0, x / extent)
