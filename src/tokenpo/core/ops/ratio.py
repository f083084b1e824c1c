"""Importance ratios [N, T] of the current to the old policy, their pessimistic clip, and estimators of KL divergences.

Log-ratios are bounded to ±20, so that ratios stay finite (e^20 ≈ 5·10^8).
"""

import math

import torch
from torch import Tensor

from . import masked
from .known_gradient import known

BOUND = 20.0


def log_ratio(logprob: Tensor, old_logprob: Tensor) -> Tensor:
    """lp − lp_old [N, T], nats, clamped to ±20; no gradient beyond."""
    return (logprob - old_logprob).clamp(-BOUND, BOUND)


def geometric(log_ratios: Tensor, mask: Tensor) -> Tensor:
    """s_i = exp(mean_t log r_it), the same at every token of the row [N, T]. GSPO (2507.18071, eq. 7)."""
    return masked.mean(log_ratios, mask, dim=1).exp().expand_as(log_ratios)


def log_product(log_ratios: Tensor, mask: Tensor, floor: float = -BOUND) -> Tensor:
    """log Π_t r_it in nats, clamped to [floor, 20], the same at every token of the row [N, T]."""
    total = masked.keep(log_ratios, mask).sum(1, keepdim=True)
    return total.clamp(floor, BOUND).expand_as(log_ratios)


def pessimistic(
    ratio: Tensor, advantage: Tensor, lower: Tensor | float, upper: Tensor | float, dual: float | None = None
) -> tuple[Tensor, Tensor]:
    """(value, clipped): min(r A, clip(r, lower, upper) A) [N, T], and [N, T] bool where that differs from r A.

    A dual clip makes the value at least dual · A where A < 0. The ratio gets a gradient except where clipped; the
    advantage gets none. A ratio that equals a bound up to rounding is not clipped.

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
            # Where A ≥ 0 the value is ≥ 0, so that the maximum with 0 leaves it.
            value = torch.maximum(value, dual * advantage.clamp(max=0).to(value.dtype))
        clipped = value != free
    return torch.where(clipped, value, free), clipped


# Nats: about ten times the difference between two float32 passes of a tiny model over the same weights.
ROUNDING = 1e-5


def k2(x: Tensor) -> Tensor:
    """x² / 2."""
    return x.square() / 2


def k3(x: Tensor) -> Tensor:
    """eˣ − 1 − x; value and slope come from expm1(x), which is exact for small x."""
    slope = x.detach().expm1()
    value = slope - x.detach()
    return known(value, [x], [slope]) if x.requires_grad else value


def absolute(x: Tensor) -> Tensor:
    """|x|, without gradient within ±1e-5, where x is the rounding between two engines that score the same policy."""
    size = x.abs()
    return torch.where(size > ROUNDING, size, size.detach())
