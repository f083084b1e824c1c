"""The pessimistic clip of PPO, in closed form."""

from __future__ import annotations

import torch
from torch import Tensor


def pessimistic(
    ratio: Tensor, advantage: Tensor, lower: Tensor | float, upper: Tensor | float, dual: float | None = None
) -> Tensor:
    """The ratio that min(r A, clip(r, lower, upper) A) really multiplies A with, [N, T].

    For A ≥ 0 that is min(r, upper); for A < 0 it is max(r, lower), and with a dual clip min(max(r, lower), dual). One
    clamp between bounds chosen by the sign of A; a ratio on a bound keeps its gradient, and bounds have none.

    >>> r = torch.tensor([0.5, 1.5, 0.5, 1.5, 20.0])
    >>> pessimistic(r, torch.tensor([1.0, 1.0, -1.0, -1.0, -1.0]), 0.8, 1.2, dual=10.0)
    tensor([ 0.5000,  1.2000,  0.8000,  1.5000, 10.0000])
    """
    negative = advantage < 0
    floor = torch.where(negative, _like(lower, ratio), 0.0)
    ceiling = torch.where(negative, torch.inf if dual is None else dual, _like(upper, ratio))
    bounded = torch.clamp(ratio.detach(), floor, ceiling)
    # For the way back it is enough to know where: the bounds themselves need not be kept.
    return torch.where(bounded == ratio, ratio, bounded)


def _like(bound: Tensor | float, ratio: Tensor) -> Tensor:
    return bound if isinstance(bound, Tensor) else ratio.new_tensor(bound)
