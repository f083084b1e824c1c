"""The pessimistic clip of PPO, in closed form."""

from __future__ import annotations

import torch
from torch import Tensor

from . import flags
from .known import sloped


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
    most = torch.finfo(ratio.dtype).max  # a number, as 0 · inf is none
    negative = flags.less(advantage, 0).to(ratio.dtype)
    floor, top = (x.to(ratio.dtype) if isinstance(x, Tensor) else x for x in (lower, upper))
    top = top.clamp(max=most) if isinstance(top, Tensor) else min(top, most)
    # A ratio is never below 0, so no bound need be.
    floor = floor.clamp(min=0) if isinstance(floor, Tensor) else max(floor, 0.0)
    ceiling = (1 - negative).mul_(top).add_(negative, alpha=most if dual is None else min(dual, most))
    # Each in the place of a bound that is not needed again; for the way back it is enough to know where they bind.
    bounds = negative.mul_(floor), ceiling
    bounded = torch.clamp(ratio.detach(), *bounds, out=ceiling)
    return sloped(bounded, ratio, torch.eq(bounded, ratio.detach(), out=negative)) if ratio.requires_grad else bounded
