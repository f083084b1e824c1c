"""Log-probability, entropy and entropy drift of tokens, from hidden states and the head, or from logits.

With T the temperature of a row, m its largest logit, d = (z - m)/T and s = Σ_v exp(d_v):

    log p_y = d_y - log s        H = log s - Σ_v exp(d_v) d_v / s        drift = Σ_v p_v² (log p_v + H)

The shifted form of H keeps its relative accuracy when the distribution is nearly deterministic, where
log-sum-exp minus a mean of logits loses it. All results are float32 (float64 when the inputs are), in nats.

Memory: at most `chunk` rows of logits are alive at a time. When all rows fit one chunk, their probabilities are kept
for the backward pass; otherwise nothing of size [M, V] is, and the backward pass forms each chunk again. Rows whose
incoming gradient is exactly zero (padding, clipped or zero-advantage tokens) are skipped there.

Axes: M rows (tokens), H hidden size, V vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from tokenpo.errors import TokenPOError

# Logits per chunk: 16 MB of float32.
_CHUNK_LOGITS = 2**22
_LEAST_CHUNK_ROWS = 128


class TokenStats(NamedTuple):
    """logprob [M] with graph; entropy [M], with graph only if asked; entropy_drift [M] without graph, or None."""

    logprob: Tensor
    entropy: Tensor
    entropy_drift: Tensor | None


def token_stats(
    hidden: Tensor,
    head: Tensor,
    target: Tensor,
    temperature: float | Tensor = 1.0,
    *,
    bias: Tensor | None = None,
    drift: bool = False,
    entropy_grad: bool = False,
    chunk: int | None = None,
) -> TokenStats:
    """Statistics of softmax((hidden headᵀ + bias) / temperature) at `target`, chunked over rows.

    Args:
        hidden: [M, H] final hidden states, of any float dtype; gradients flow to it, to `head` and to `bias`.
        head: [V, H] output embedding.
        target: [M] int, the token of each row.
        temperature: > 0, a number or [M]; a constant of the graph.
        bias: [V], if the head has one.
        drift: also compute Σ_v p_v² (log p_v + H).
        entropy_grad: let gradients flow through the entropy.
        chunk: rows of logits alive at a time; by default about 16 MB of them.

    Raises:
        TokenPOError: shapes that do not belong together, or a temperature <= 0.
    """
    if hidden.dim() != 2 or head.dim() != 2 or hidden.shape[1] != head.shape[1]:
        raise TokenPOError(
            f"token_stats: hidden {list(hidden.shape)} and head {list(head.shape)} must be [M, H] and [V, H]"
        )
    scale = _inverse_temperature(temperature, hidden.shape[0], target, "token_stats")
    hidden, head, bias = _same_dtype(hidden, head, bias)
    chunk = chunk or chunk_rows(head.shape[0])
    if hidden.shape[0] <= chunk:
        logprob, entropy, moved = _LogitStats.apply(F.linear(hidden, head, bias), target, scale, drift, entropy_grad)
    else:
        logprob, entropy, moved = _HeadStats.apply(hidden, head, bias, target, scale, drift, entropy_grad, chunk)
    return TokenStats(logprob, entropy, moved if drift else None)


def stats_from_logits(
    logits: Tensor,
    target: Tensor,
    temperature: float | Tensor = 1.0,
    *,
    drift: bool = False,
    entropy_grad: bool = False,
) -> TokenStats:
    """The same statistics from logits [M, V] that exist already (soft-capped ones, a foreign engine's).

    Raises:
        TokenPOError: shapes that do not belong together, or a temperature <= 0.
    """
    if logits.dim() != 2:
        raise TokenPOError(f"stats_from_logits: logits {list(logits.shape)} must be [M, V]")
    scale = _inverse_temperature(temperature, logits.shape[0], target, "stats_from_logits")
    logprob, entropy, moved = _LogitStats.apply(logits, target, scale, drift, entropy_grad)
    return TokenStats(logprob, entropy, moved if drift else None)


def chunk_rows(vocabulary: int) -> int:
    """Rows of logits [·, V] that make a chunk."""
    return max(_LEAST_CHUNK_ROWS, _CHUNK_LOGITS // vocabulary)


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
    """[M] nats. Overwrites nothing; logits of -inf (excluded tokens) count as probability zero."""
    # exp(-1e4) is 0 in every dtype here, and 0 · -1e4 is 0 where 0 · -inf would be NaN.
    return parts.s.log().squeeze(-1) - (parts.p * parts.d.clamp(min=-1e4)).sum(-1) / parts.s.squeeze(-1)


def _rows(logits: Tensor, target: Tensor, scale: float | Tensor, drift: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """logprob, entropy, drift (empty unless asked), all [M], and the probabilities [M, V]."""
    parts = softmax_parts(logits, scale)
    log_s = parts.s.log().squeeze(-1)
    logprob = parts.d.gather(-1, target.unsqueeze(-1)).squeeze(-1) - log_s
    entropy = entropy_of(parts)
    p = parts.p.div_(parts.s)
    moved = p.new_empty(0)
    if drift:
        offset = (entropy - log_s).unsqueeze(-1)
        moved = (parts.d.clamp_(min=-1e4).add_(offset).mul_(p).mul_(p)).sum(-1)
    return logprob, entropy, moved, p


def _logit_gradient(
    p: Tensor, target: Tensor, scale: float | Tensor, g: Tensor, entropy: Tensor | None, g_entropy: Tensor | None
) -> Tensor:
    """Gradient of Σ g log p_y + g_entropy H to the logits; [M, V] in a new buffer."""
    dz = p * -g.unsqueeze(-1)
    if g_entropy is not None and entropy is not None:
        dz -= (torch.xlogy(p, p) + p * entropy.unsqueeze(-1)) * g_entropy.unsqueeze(-1)
    dz.scatter_add_(-1, target.unsqueeze(-1), g.unsqueeze(-1))
    return dz if isinstance(scale, float) and scale == 1.0 else dz.mul_(scale)


class _LogitStats(torch.autograd.Function):
    """One chunk: probabilities are kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, scale: Any, drift: bool, entropy_grad: bool) -> Any:
        logprob, entropy, moved, p = _rows(logits, target, scale, drift)
        ctx.scale, ctx.entropy_grad, ctx.dtype = scale, entropy_grad, logits.dtype
        ctx.save_for_backward(p, target, entropy)
        ctx.mark_non_differentiable(moved, *(() if entropy_grad else (entropy,)))
        return logprob, entropy, moved

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        p, target, entropy = ctx.saved_tensors
        dz = _logit_gradient(p, target, ctx.scale, grads[0], entropy, grads[1] if ctx.entropy_grad else None)
        return dz.to(ctx.dtype), None, None, None, None


class _HeadStats(torch.autograd.Function):
    """Many chunks: logits live one chunk at a time, in both directions."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        bias: Tensor | None,
        target: Tensor,
        scale: Any,
        drift: bool,
        entropy_grad: bool,
        chunk: int,
    ) -> Any:
        pieces = []
        for start in range(0, hidden.shape[0], chunk):
            at = slice(start, start + chunk)
            pieces.append(_rows(F.linear(hidden[at], head, bias), target[at], _part(scale, at), drift)[:3])
        logprob, entropy, moved = (torch.cat(column) for column in zip(*pieces, strict=True))
        ctx.scale, ctx.entropy_grad, ctx.chunk = scale, entropy_grad, chunk
        ctx.save_for_backward(hidden, head, bias, target, entropy)
        ctx.mark_non_differentiable(moved, *(() if entropy_grad else (entropy,)))
        return logprob, entropy, moved

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        hidden, head, bias, target, entropy = ctx.saved_tensors
        g, g_entropy = grads[0], grads[1] if ctx.entropy_grad else None
        live = (g != 0) if g_entropy is None else (g != 0) | (g_entropy != 0)
        rows = live.nonzero().squeeze(-1)
        to_hidden, to_head, to_bias = ctx.needs_input_grad[:3]
        wide = torch.promote_types(head.dtype, torch.float32)
        d_hidden = torch.zeros_like(hidden) if to_hidden else None
        d_head = torch.zeros_like(head, dtype=wide) if to_head else None
        d_bias = torch.zeros_like(bias, dtype=wide) if to_bias else None
        for at in rows.split(ctx.chunk):
            h, y, scale = hidden[at], target[at], _part(ctx.scale, at)
            _, _, _, p = _rows(F.linear(h, head, bias), y, scale, False)
            dz = _logit_gradient(p, y, scale, g[at], entropy[at], None if g_entropy is None else g_entropy[at])
            if d_bias is not None:
                d_bias += dz.sum(0)
            dz = dz.to(head.dtype)
            if d_hidden is not None:
                d_hidden[at] = dz @ head
            if d_head is not None:
                d_head += dz.t() @ h
        d_head = None if d_head is None else d_head.to(head.dtype)
        d_bias = None if d_bias is None else d_bias.to(bias.dtype)
        return d_hidden, d_head, d_bias, None, None, None, None, None


def _part(scale: float | Tensor, at: Any) -> float | Tensor:
    return scale[at] if isinstance(scale, Tensor) else scale


def _inverse_temperature(temperature: float | Tensor, m: int, target: Tensor, where: str) -> float | Tensor:
    """1/T as a number or as [M, 1]."""
    if tuple(target.shape) != (m,) or target.is_floating_point():
        raise TokenPOError(
            f"{where}: target has shape {list(target.shape)} and dtype {target.dtype}, expected [{m}] int"
        )
    if not isinstance(temperature, Tensor):
        if not temperature > 0:
            raise TokenPOError(f"{where}: temperature is {temperature}, expected > 0")
        return 1.0 / float(temperature)
    if temperature.dim() == 0:
        temperature = temperature.expand(m)
    if tuple(temperature.shape) != (m,):
        raise TokenPOError(f"{where}: temperature has shape {list(temperature.shape)}, expected [{m}]")
    if m and not temperature.min() > 0:
        raise TokenPOError(f"{where}: temperature holds {float(temperature.min())}, expected > 0 in every row")
    temperature = temperature if temperature.dtype == torch.float64 else temperature.float()
    return temperature.reciprocal().unsqueeze(-1)


def _same_dtype(hidden: Tensor, head: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Under autocast what autocast would use; otherwise the wider of the two."""
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    else:
        dtype = torch.promote_types(hidden.dtype, head.dtype)
    return hidden.to(dtype), head.to(dtype), None if bias is None else bias.to(dtype)
