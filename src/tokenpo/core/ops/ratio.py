"""Importance ratios [N, T] between the current and the old policy, of tokens and of sequences.

Log-ratios are bounded to ±20, so that ratios stay finite (e^20 ≈ 5·10^8).
"""

from __future__ import annotations

from torch import Tensor

from . import masked

BOUND = 20.0


def log_ratio(logprob: Tensor, old_logprob: Tensor) -> Tensor:
    """lp − lp_old in nats, bounded to ±20 and flat beyond, [N, T]."""
    return (logprob - old_logprob).clamp(-BOUND, BOUND)


def geometric(log_ratios: Tensor, mask: Tensor) -> Tensor:
    """s_i = exp(mean_t log r_it), shown at every token of the row [N, T]. GSPO (2507.18071, eq. 7)."""
    return masked.mean(log_ratios, mask, dim=1).exp().expand_as(log_ratios)


def log_product(log_ratios: Tensor, mask: Tensor, floor: float = -BOUND) -> Tensor:
    """log Π_t r_it in nats, bounded to [floor, 20], shown at every token of the row [N, T]."""
    total = masked.keep(log_ratios, mask).sum(1, keepdim=True)
    return total.clamp(floor, BOUND).expand_as(log_ratios)
