"""The pessimistic clip of PPO."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def pessimistic(
    ratio: Tensor, advantage: Tensor, lower: Tensor | float, upper: Tensor | float, dual: float | None = None
) -> tuple[Tensor, Tensor]:
    """(value, clipped): min(r A, clip(r, lower, upper) A) [N, T], and [N, T] bool where that is not r A.

    A dual clip makes the value at least dual · A where A < 0. Only the ratio gets a gradient, and none where clipped; a
    ratio on a bound, or next to it by rounding, is not clipped.

    >>> r = torch.tensor([0.5, 1.5, 0.5, 1.5, 20.0])
    >>> value, clipped = pessimistic(r, torch.tensor([1.0, 1.0, -1.0, -1.0, -1.0]), 0.8, 1.2, dual=10.0)
    >>> value
    tensor([  0.5000,   1.2000,  -0.8000,  -1.5000, -10.0000])
    >>> clipped
    tensor([False,  True,  True, False,  True])
    """
    advantage = advantage.detach()
    lower, upper = (x.to(ratio.dtype) if isinstance(x, Tensor) else x for x in (lower, upper))
    free = ratio * advantage
    with torch.no_grad():
        value = torch.minimum(free, ratio.clamp(min=lower).clamp(max=upper) * advantage)
        if dual is not None and math.isfinite(dual):
            # Where A ≥ 0 the value is ≥ 0 and stays.
            value = torch.maximum(value, dual * advantage.clamp(max=0).to(value.dtype))
        clipped = value != free
    return torch.where(clipped, value, free), clipped
