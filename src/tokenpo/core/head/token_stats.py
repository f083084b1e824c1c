"""Log-probability, entropy and entropy drift of tokens, from hidden states and the head, or from logits.

At most `chunk` rows of logits exist at a time; the backward pass computes them again unless they fit one chunk. It
skips rows whose incoming gradient is exactly zero (clipped tokens, or tokens without advantage).

Axes: M rows (tokens), H hidden size, V vocabulary.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ...base.errors import TokenPOError, present
from .kept import keep_only_, require_whole
from .projection import HeadGradient, chunk_rows, logits_of, same_dtype
from .softmax import RowStats, ascent, part, residual, scaled
from .teacher import AnyTeacher, divergence_


class TokenStats(NamedTuple):
    """Statistics of M tokens, each [M].

    Args:
        logprob: with graph.
        entropy: with graph if `entropy_grad`.
        entropy_drift: without graph; None if not computed.
        teacher_divergence: with graph; None without a teacher.
    """

    logprob: Tensor
    entropy: Tensor
    entropy_drift: Tensor | None
    teacher_divergence: Tensor | None = None


def token_stats(
    hidden: Tensor,
    head: Tensor,
    target: Tensor,
    temperature: float | Tensor = 1.0,
    *,
    bias: Tensor | None = None,
    drift: bool = False,
    entropy_grad: bool = False,
    teacher: AnyTeacher | None = None,
    beta: float = 0.5,
    kept: Tensor | None = None,
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
        teacher: also compute the divergence from its distributions at the same temperature.
        beta: kind of that divergence (`head.teacher`); `Objective.teacher_beta`.
        kept: [M, K] int, the tokens that the softmax is over (`Rollouts.kept_ids`); None is the whole vocabulary.
        chunk: rows of logits that exist at a time; None as in `chunk_rows`.

    Raises:
        TokenPOError: shapes do not match, a temperature <= 0, or a teacher and kept tokens.
    """
    if hidden.dim() != 2 or head.dim() != 2 or hidden.shape[1] != head.shape[1]:
        raise TokenPOError(
            f"token_stats: hidden {list(hidden.shape)} and head {list(head.shape)} must be [M, H] and [V, H]"
        )
    scale = inverse_temperature(temperature, hidden.shape[0], target, "token_stats")
    hidden, head, bias = same_dtype(hidden, head, bias)
    chunk = chunk or chunk_rows(len(head), head.dtype, head.device)
    teacher = None if teacher is None else teacher.ready(len(hidden), len(head), kept)
    flags = drift, entropy_grad, chunk, teacher, beta, kept
    logprob, entropy, moved, divergence = _HeadStats.apply(hidden, head, bias, target, scale, *flags)
    return TokenStats(logprob, entropy, moved if drift else None, None if teacher is None else divergence)


def stats_from_logits(
    logits: Tensor,
    target: Tensor,
    temperature: float | Tensor = 1.0,
    *,
    drift: bool = False,
    entropy_grad: bool = False,
    teacher: Tensor | None = None,
    beta: float = 0.5,
    kept: Tensor | None = None,
) -> TokenStats:
    """`token_stats` from existing logits [M, V], such as soft-capped ones; `teacher` [M, V] are a teacher's."""
    if logits.dim() != 2:
        raise TokenPOError(f"stats_from_logits: logits {list(logits.shape)} must be [M, V]")
    scale = inverse_temperature(temperature, logits.shape[0], target, "stats_from_logits")
    if teacher is not None and teacher.shape != logits.shape:
        raise TokenPOError(f"stats_from_logits: teacher {list(teacher.shape)} must be like logits {list(logits.shape)}")
    if teacher is not None:
        require_whole(kept)
    flags = drift, entropy_grad, teacher, beta, kept
    logprob, entropy, moved, divergence = _LogitStats.apply(logits, target, scale, *flags)
    return TokenStats(logprob, entropy, moved if drift else None, None if teacher is None else divergence)


class _LogitStats(torch.autograd.Function):
    """Keeps the residual for the backward pass; does not change the caller's logits."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        target: Tensor,
        scale: Any,
        drift: bool,
        entropy_grad: bool,
        teacher: Tensor | None,
        beta: float,
        kept: Tensor | None,
    ) -> Any:
        left = torch.empty_like(logits, memory_format=torch.contiguous_format)
        slope = None if teacher is None else teacher.detach().clone()
        source = logits if kept is None else keep_only_(left.copy_(logits), kept)
        stats = residual(source, target, scale, drift=drift, out=left)
        if slope is not None:
            stats = stats._replace(divergence=divergence_(logits, slope, scale, beta))
        ctx.scale, ctx.entropy_grad = scale, entropy_grad
        ctx.save_for_backward(slope, left, target, *stats)
        ctx.mark_non_differentiable(*_fixed(stats, entropy_grad, slope is not None))
        return tuple(stats)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        slope, left, target, *stats = ctx.saved_tensors
        g_entropy, g_divergence = grads[1] if ctx.entropy_grad else None, None if slope is None else grads[3]
        w, factor = ascent(left, RowStats(*stats), target, ctx.scale, grads[0], g_entropy, g_divergence, slope)
        return scaled(w, factor, spend=False), *[None] * 7


class _HeadStats(torch.autograd.Function):
    """Computes one chunk of logits at a time, forward and backward."""

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
        teacher: AnyTeacher | None,
        beta: float,
        kept_ids: Tensor | None,
    ) -> Any:
        m, slope = len(hidden), None
        buffer = hidden.new_empty(min(m, chunk), len(head))
        pieces = []
        for start in range(0, max(m, 1), chunk):
            at = slice(start, start + chunk)
            z = logits_of(part(hidden, at), head, bias, buffer, part(kept_ids, at))
            heat, divergence = part(scale, at), None
            if teacher is not None:
                divergence, slope = teacher.compare(at, z, heat, beta)
            piece = residual(z, part(target, at), heat, drift=drift)
            pieces.append(piece if divergence is None else piece._replace(divergence=divergence))
        stats = joined(pieces)
        ctx.scale, ctx.entropy_grad, ctx.chunk, ctx.teacher, ctx.beta = scale, entropy_grad, chunk, teacher, beta
        ctx.kept_ids = kept_ids
        kept = (buffer, slope) if m <= chunk else (None, None)
        ctx.save_for_backward(hidden, head, bias, target, *kept, *stats)
        ctx.mark_non_differentiable(*_fixed(stats, entropy_grad, teacher is not None))
        return tuple(stats)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        hidden, head, bias, target, kept, slopes, logprob, entropy, drift, divergence = ctx.saved_tensors
        kept_stats = RowStats(logprob, entropy, drift, divergence)
        incoming = grads[0], grads[1] if ctx.entropy_grad else None, None if ctx.teacher is None else grads[3]
        parts = live_rows(incoming, head, ctx.chunk)
        every = all(isinstance(at, slice) for at in parts)
        once = len(hidden) <= ctx.chunk
        total = HeadGradient.start(hidden, head, bias, ctx.needs_input_grad[:3], every=every, once=once)
        for at in parts:
            h, y, scale = (part(x, at) for x in (hidden, target, ctx.scale))
            left, slope = part(kept, at), part(slopes, at)
            if kept is None:
                left = logits_of(h, head, bias, kept=part(ctx.kept_ids, at))
                if ctx.teacher is not None:
                    _, slope = ctx.teacher.compare(at, left, scale, ctx.beta)
                residual(left, y, scale)
            stats = kept_stats.at(at)
            # Views of the kept tensors must not be overwritten, as there may be another backward pass.
            spend = kept is None or not every
            w, factor = ascent(left, stats, y, scale, *(part(g, at) for g in incoming), slope=slope, spend=spend)
            total.add(at, w, factor, h, head, spend=spend)
        return *total.like(hidden, head, bias), *[None] * 8


def _fixed(stats: RowStats, entropy_grad: bool, taught: bool) -> tuple[Tensor, ...]:
    return stats.drift, *(() if entropy_grad else (stats.entropy,)), *(() if taught else (stats.divergence,))


def live_rows(incoming: Sequence[Tensor | None], head: Tensor, chunk: int) -> Sequence[slice | Tensor]:
    """The rows where an incoming gradient [M] is not 0, at most `chunk` at a time; slices for all rows or V ≤ H."""
    count = len(present(incoming[0], "the gradient of the log-probabilities"))
    if head.shape[0] > head.shape[1]:
        rows = functools.reduce(torch.logical_or, [g != 0 for g in incoming if g is not None]).nonzero().squeeze(-1)
        if len(rows) < count:
            return rows.split(chunk)
    return [slice(start, min(start + chunk, count)) for start in range(0, count, chunk)]


def joined(pieces: Sequence[RowStats]) -> RowStats:
    """The statistics of several chunks, concatenated."""
    if len(pieces) == 1:
        return pieces[0]
    return RowStats(*(torch.cat(column) for column in zip(*pieces, strict=True)))


def inverse_temperature(temperature: float | Tensor, m: int, target: Tensor, where: str) -> float | Tensor:
    """1/T as a number or as [M, 1]; `where` names the caller in messages."""
    if tuple(target.shape) != (m,) or target.is_floating_point():
        raise TokenPOError(
            f"{where}: target has shape {list(target.shape)} and dtype {target.dtype}, expected [{m}] int"
        )
    least = temperature
    if isinstance(temperature, Tensor):
        temperature = temperature.expand(m)
        least = temperature.min() if m else 1.0
    if not least > 0:
        raise TokenPOError(f"{where}: temperature holds {float(least)}, expected > 0")
    if not isinstance(temperature, Tensor):
        return 1.0 / float(temperature)
    temperature = temperature if temperature.dtype == torch.float64 else temperature.float()
    return temperature.reciprocal().unsqueeze(-1)
