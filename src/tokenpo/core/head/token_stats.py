"""Log-probability, entropy and entropy drift of tokens, from hidden states and the head, or from logits.

At most `chunk` rows of logits are alive at a time. If all rows fit one chunk, the residual of their softmax is kept for
the backward pass; else nothing of size [M, V] is, and the backward pass forms each chunk again. It skips rows whose
incoming gradient is exactly zero (clipped or zero-advantage tokens).

Axes: M rows (tokens), H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...base.errors import TokenPOError
from .projection import HeadGradient, chunk_rows, logits_of
from .softmax import RowStats, ascent, part, scaled
from .softmax_backend import residual


class TokenStats(NamedTuple):
    """logprob [M] with graph; entropy [M], with graph if `entropy_grad`; entropy_drift [M] without graph, or None."""

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
        chunk: rows of logits alive at a time, 512 at least; by default 16 MB of logits, a 32nd of a GPU's memory.

    Raises:
        TokenPOError: shapes that do not belong together, or a temperature <= 0.
    """
    if hidden.dim() != 2 or head.dim() != 2 or hidden.shape[1] != head.shape[1]:
        raise TokenPOError(
            f"token_stats: hidden {list(hidden.shape)} and head {list(head.shape)} must be [M, H] and [V, H]"
        )
    scale = inverse_temperature(temperature, hidden.shape[0], target, "token_stats")
    hidden, head, bias = same_dtype(hidden, head, bias)
    chunk = chunk or chunk_rows(len(head), head.dtype, head.device)
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
    """`token_stats` from logits [M, V] that exist already (soft-capped ones, a foreign engine's).

    Raises:
        TokenPOError: shapes that do not belong together, or a temperature <= 0.
    """
    if logits.dim() != 2:
        raise TokenPOError(f"stats_from_logits: logits {list(logits.shape)} must be [M, V]")
    scale = inverse_temperature(temperature, logits.shape[0], target, "stats_from_logits")
    logprob, entropy, moved = _LogitStats.apply(logits, target, scale, drift, entropy_grad)
    return TokenStats(logprob, entropy, moved if drift else None)


class _LogitStats(torch.autograd.Function):
    """Keeps the residual for the backward pass and leaves the caller's logits as they are."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor, scale: Any, drift: bool, entropy_grad: bool) -> Any:
        left = torch.empty_like(logits, memory_format=torch.contiguous_format)
        stats = residual(logits, target, scale, drift=drift, out=left)
        ctx.scale, ctx.entropy_grad = scale, entropy_grad
        ctx.save_for_backward(left, target, *stats)
        ctx.mark_non_differentiable(stats.drift, *(() if entropy_grad else (stats.entropy,)))
        return tuple(stats)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        left, target, *stats = ctx.saved_tensors
        g_entropy = grads[1] if ctx.entropy_grad else None
        w, factor = ascent(left, RowStats(*stats), target, ctx.scale, grads[0], g_entropy)
        return scaled(w, factor, spend=False), None, None, None, None


class _HeadStats(torch.autograd.Function):
    """One chunk of logits is alive at a time, forward and backward."""

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
        m = len(hidden)
        buffer = hidden.new_empty(min(m, chunk), len(head))
        pieces = []
        for start in range(0, max(m, 1), chunk):
            at = slice(start, start + chunk)
            z = logits_of(part(hidden, at), head, bias, buffer)
            pieces.append(residual(z, part(target, at), part(scale, at), drift=drift))
        stats = joined(pieces)
        ctx.scale, ctx.entropy_grad, ctx.chunk = scale, entropy_grad, chunk
        ctx.save_for_backward(hidden, head, bias, target, *stats, buffer if m <= chunk else None)
        ctx.mark_non_differentiable(stats.drift, *(() if entropy_grad else (stats.entropy,)))
        return tuple(stats)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        hidden, head, bias, target, *stats, kept = ctx.saved_tensors
        g, g_entropy = grads[0], grads[1] if ctx.entropy_grad else None
        parts = live_rows(g, g_entropy, head, ctx.chunk)
        every = all(isinstance(at, slice) for at in parts)
        once = len(hidden) <= ctx.chunk
        total = HeadGradient.start(hidden, head, bias, ctx.needs_input_grad[:3], every=every, once=once)
        for at in parts:
            h, y, scale = (part(x, at) for x in (hidden, target, ctx.scale))
            left = part(kept, at) if kept is not None else logits_of(h, head, bias)
            if kept is None:
                residual(left, y, scale)
            known = RowStats(*stats).at(at)
            # A view of what is kept must not be overwritten: there may be another backward pass.
            spend = kept is None or not every
            incoming = part(g, at), part(g_entropy, at)
            w, factor = ascent(left, known, y, scale, *incoming, spend=spend)
            total.add(at, w, factor, h, head, spend=spend)
        return (*total.like(hidden, head, bias), None, None, None, None, None)


def live_rows(g: Tensor, g_entropy: Tensor | None, head: Tensor, chunk: int) -> Sequence[slice | Tensor]:
    """The rows whose incoming gradient [M] is not exactly zero, at most `chunk` at a time; slices if those are all.

    With V ≤ H they are all rows: gathering some would cost as much as the smaller products save.
    """
    if head.shape[0] > head.shape[1]:
        live = (g != 0) if g_entropy is None else (g != 0) | (g_entropy != 0)
        rows = live.nonzero().squeeze(-1)
        if len(rows) < len(g):
            return rows.split(chunk)
    return [slice(start, start + chunk) for start in range(0, len(g), chunk)]


def joined(pieces: Sequence[RowStats]) -> RowStats:
    """The statistics of several chunks, concatenated."""
    if len(pieces) == 1:
        return pieces[0]
    return RowStats(*(torch.cat(column) for column in zip(*pieces, strict=True)))


def inverse_temperature(temperature: float | Tensor, m: int, target: Tensor, where: str) -> float | Tensor:
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


def same_dtype(hidden: Tensor, head: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """All three in one dtype: autocast's where it is enabled, else the wider of hidden's and head's."""
    device = hidden.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    else:
        dtype = torch.promote_types(hidden.dtype, head.dtype)
    return hidden.to(dtype), head.to(dtype), None if bias is None else bias.to(dtype)
