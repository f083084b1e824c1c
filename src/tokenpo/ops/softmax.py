"""The softmax of rows of logits: taken apart for a sampler, or overwritten by its own gradient for a learner.

With a = 1/T the inverse temperature, m the largest logit of a row, d = (z - m) a, s = Σ_v exp(d_v), p = exp(d) / s:

    log p_y = d_y - log s        H = log s - Σ_v p_v d_v        drift = Σ_v p_v² (log p_v + H)
    ∂ log p_y / ∂z = -a (p - 1_y)        ∂H / ∂z_v = -a p_v (log p_v + H)

The shifted form of H keeps its relative accuracy when the distribution is nearly deterministic, where log-sum-exp minus
a mean of logits loses it. The *residual* p - 1_y is all that a gradient through log p_y needs, and takes the place of
the logits; its entry at y is expm1(log p_y), exact where p_y is almost 1. Logits of -inf (excluded tokens) count as
probability zero. Statistics are float32 (float64 of float64 logits), in nats.

Axes: M rows, V vocabulary.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

_LN2 = math.log(2)
# exp(-1e4) is 0 in every dtype here, and 0 · -1e4 is 0 where 0 · -inf would be NaN.
FLOOR = -1e4
# Logits worked on at once: what stays in a core's cache, or what keeps a GPU busy.
_BLOCK_LOGITS, _GPU_BLOCK_LOGITS = 2**18, 2**26


class Softmax(NamedTuple):
    """A softmax taken apart: d = (z - max)/T [M, V] (mutable), p = exp(d) [M, V], s = Σ p [M, 1]."""

    d: Tensor
    p: Tensor
    s: Tensor


def softmax_parts(logits: Tensor, scale: float | Tensor = 1.0) -> Softmax:
    """The unnormalised softmax of logits [M, V] at inverse temperature `scale` (a number or [M, 1])."""
    z = logits if logits.dtype == torch.float64 else logits.float()
    d = z - z.amax(-1, keepdim=True)
    if not (isinstance(scale, float) and scale == 1.0):
        d.mul_(scale)
    p = d.exp()
    return Softmax(d, p, p.sum(-1, keepdim=True))


def entropy_of(parts: Softmax) -> Tensor:
    """[M] nats. Overwrites nothing."""
    return parts.s.log().squeeze(-1) - (parts.p * parts.d.clamp(min=FLOOR)).sum(-1) / parts.s.squeeze(-1)


class RowStats(NamedTuple):
    """log p_y, H and drift, each [M] in nats; drift is empty unless asked for."""

    logprob: Tensor
    entropy: Tensor
    drift: Tensor

    def at(self, rows: slice | Tensor) -> RowStats:
        """Of some rows."""
        return RowStats(self.logprob[rows], self.entropy[rows], self.drift[rows] if len(self.drift) else self.drift)


def wide(dtype: torch.dtype) -> torch.dtype:
    """What is accumulated in: float32 at least."""
    return torch.promote_types(dtype, torch.float32)


def residual(
    logits: Tensor, target: Tensor, scale: float | Tensor, *, drift: bool = False, out: Tensor | None = None
) -> RowStats:
    """Statistics of softmax(logits · scale) at `target`; writes p - 1_y over the logits, or to `out`.

    Args:
        logits: [M, V] of any float dtype, which the residual keeps.
        target: [M] int.
        scale: 1/T, a number or [M, 1].
        drift: also Σ_v p_v² (log p_v + H).
        out: [M, V] of the logits' dtype; None overwrites them.
    """
    m, v = logits.shape
    out = logits if out is None else out
    stats = logits.new_empty(3 if drift else 2, m, dtype=wide(logits.dtype))
    step = _block_rows(v, logits.device)
    # One buffer for all blocks, in halves another for what cannot be written to `out`: fresh ones cost page faults.
    shifted = logits.new_empty(min(step, m), v, dtype=stats.dtype)
    apart = None if out.dtype == stats.dtype else torch.empty_like(shifted)
    # Powers of two are cheaper than those of e.
    scale = scale / _LN2
    for start in range(0, m, step):
        at = slice(start, start + step)
        part = scale[at] if isinstance(scale, Tensor) else scale
        z, here = logits[at], out[at]
        d, p = shifted[: len(z)], here if apart is None else apart[: len(z)]
        if z.dtype != d.dtype:
            z = d.copy_(z)
        torch.sub(z, z.amax(-1, keepdim=True), out=d)
        _block(d.mul_(part), p, target[at].unsqueeze(-1), stats[:, at].unsqueeze(-1))
        if p is not here:
            here.copy_(p)
    return RowStats(stats[0], stats[1], stats[2] if drift else stats.new_empty(0))


def _block(d: Tensor, p: Tensor, target: Tensor, stats: Tensor) -> None:
    """Statistics [2 or 3, k, 1] of k rows of log2 e · (z - m) a, which are overwritten; their residual into `p`."""
    logprob = d.gather(-1, target)
    d.clamp_(min=FLOOR)
    torch.exp2(d, out=p)
    s = p.sum(-1, keepdim=True)
    log_s = s.log2()
    p.mul_(s.reciprocal_())
    mean = d.mul_(p).sum(-1, keepdim=True)
    stats[0] = logprob.sub_(log_s).mul_(_LN2)
    stats[1] = log_s.sub_(mean).mul_(_LN2)
    if len(stats) == 3:
        stats[2] = (d.mul_(p).sum(-1, keepdim=True) - mean * p.square().sum(-1, keepdim=True)) * _LN2
    p.scatter_(-1, target, logprob.expm1_())


def ascent(
    left: Tensor,
    stats: RowStats,
    target: Tensor,
    scale: float | Tensor,
    g: Tensor,
    g_entropy: Tensor | None,
    *,
    spend: bool = False,
) -> tuple[Tensor, Tensor]:
    """(w [M, V], f [M, 1]) with f · w the gradient of Σ g log p_y + g_entropy H to the logits.

    Kept apart because f is cheaper to apply to hidden states than to w, and because w keeps its precision in half the
    width however small f is. Without g_entropy w is `left` itself.

    Args:
        left: [M, V], what `residual` left.
        stats: what it returned.
        target: [M].
        scale: as given to it.
        g: [M], gradient that arrives at log p_y.
        g_entropy: [M], gradient that arrives at H, if any.
        spend: `left` may be overwritten.
    """
    if g_entropy is None:
        return left, -g.unsqueeze(-1) * scale
    w = left if spend else torch.empty_like(left)
    step = _block_rows(left.shape[1], left.device)
    for start in range(0, len(left), step):
        at = slice(start, start + step)
        y, logprob = target[at].unsqueeze(-1), stats.logprob[at].unsqueeze(-1)
        r = left[at].to(logprob.dtype)
        p = r.scatter(-1, y, logprob.exp())
        rise = torch.xlogy(p, p).addcmul_(p, stats.entropy[at].unsqueeze(-1))
        w[at] = rise.mul_(g_entropy[at].unsqueeze(-1)).addcmul_(r, g[at].unsqueeze(-1)).to(w.dtype)
    return w, -torch.ones_like(g).unsqueeze(-1) * scale


def _block_rows(vocabulary: int, device: torch.device) -> int:
    return max(4, (_BLOCK_LOGITS if device.type == "cpu" else _GPU_BLOCK_LOGITS) // vocabulary)
