"""An objective straight from hidden states and the head, a few whole responses at a time.

Losses of disjoint rows add up, so the loss of a chunk of responses, and with it the gradient at each of its tokens, is
known as soon as the chunk's logits are: hidden states and head get their gradients at once, from what the softmax left
in place of the logits. That is three matrix products, nothing computed twice, and never more logits than a chunk holds.
A response longer than a chunk takes a fourth product: its logits are formed again once its loss is known. Rows of
logits whose gradient is exactly zero (no advantage, clipped) are skipped in the two products of the way back.

An objective of batch scope looks at the whole optimiser step first: either `observe` has been called, or the rows given
here are all there are, and their statistics are taken in a pass of their own.

Axes: N responses, T their tokens, M true entries of the mask in the order of `mask.nonzero()`, H hidden size,
V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .errors import MissingInput, TokenPOError
from .objective import Objective
from .ops.head import HeadGradient, chunk_rows, keep_rows_, logits_of
from .ops.softmax import RowStats, ascent, residual, wide
from .ops.token_stats import inverse_temperature, live_rows, part, same_dtype
from .types import Batch, Credit, Loss, Policy, Rollouts, Totals


@dataclass(frozen=True, eq=False)
class Fused:
    """A loss with what it was made of: `policy` is detached, exactly what the objective needs."""

    loss: Loss
    policy: Policy


def fused_loss(
    objective: Objective,
    hidden: Tensor,
    head: Tensor,
    rollouts: Rollouts,
    credit: Credit,
    totals: Totals,
    *,
    bias: Tensor | None = None,
    generator: torch.Generator | None = None,
    chunk: int | None = None,
) -> Fused:
    """The loss of any rows of an optimiser step, with graph to `hidden`, `head` and `bias`.

    All gradients are computed here and only scaled by what arrives in the backward pass; without gradients there is one
    product instead of three.

    Args:
        hidden: [M, H], the final hidden state that predicts each response token.
        head: [V, H] output embedding.
        rollouts: with token_ids; temperature is 1 where it has none.
        credit: of `prepare`, or of `observe` for an objective of batch scope.
        totals: denominators of the whole optimiser step.
        bias: [V], if the head has one.
        generator: of `observe`, where it has not been called.
        chunk: tokens whose logits are alive at a time; by default about 16 MB of them.

    Raises:
        MissingInput: no token ids, or an input that the objective needs is absent.
        TokenPOError: shapes that do not belong together, or a part of a step without the statistics of the whole.
    """
    hidden, head, bias = same_dtype(hidden, head, bias)
    work = _Work.of(objective, hidden, head, bias, rollouts, credit, totals, chunk)
    found: list[Fused] = []

    def run(total: HeadGradient | None) -> Tensor:
        found.append(work.run(generator, total))
        return found[0].loss.value

    # Inside a Function one cannot tell whether gradients are off.
    value = _Fused.apply(hidden, head, bias, run) if torch.is_grad_enabled() else run(None)
    return dataclasses.replace(found[0], loss=Loss(value, found[0].loss.terms))


def fused_gradient(
    objective: Objective,
    hidden: Tensor,
    head: Tensor,
    rollouts: Rollouts,
    credit: Credit,
    totals: Totals,
    *,
    bias: Tensor | None = None,
    generator: torch.Generator | None = None,
    chunk: int | None = None,
) -> tuple[Fused, Tensor]:
    """The same without graph: gradients are added to `head.grad` and `bias.grad` in place, as leaves that want them.

    No second buffer of the head's size is needed where the head is float32, whatever autocast computes in.

    Returns:
        The loss, detached, and its gradient to `hidden` [M, H], for `hidden.backward`.
    """
    for name, x in (("head", head), ("bias", bias)):
        if x is not None and x.requires_grad and not x.is_leaf:
            raise TokenPOError(f"fused_gradient: {name} is computed from something else: use fused_loss")
    work = _Work.of(objective, *same_dtype(hidden, head, bias), rollouts, credit, totals, chunk)
    total = HeadGradient(torch.empty_like(work.hidden), _buffer(head), None if bias is None else _buffer(bias))
    fused = work.run(generator, total)
    for x, added in ((head, total.head), (bias, total.bias)):
        if x is not None and x.grad is not None and added is not None and added is not x.grad:
            x.grad += added
    assert total.hidden is not None
    return fused, total.hidden.to(hidden.dtype)


def _detached(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.detach()


def _buffer(x: Tensor) -> Tensor | None:
    """Where to add the gradient of a leaf: its own buffer if that is wide enough."""
    if not x.requires_grad:
        return None
    if x.grad is None:
        x.grad = torch.zeros_like(x)
    return x.grad if x.dtype == wide(x.dtype) else torch.zeros_like(x, dtype=wide(x.dtype))


class _Fused(torch.autograd.Function):
    """Hands out gradients that are known since the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        head: Tensor,
        bias: Tensor | None,
        run: Callable[[HeadGradient | None], Tensor],
    ) -> Tensor:
        if not any(ctx.needs_input_grad):
            return run(None)
        total = HeadGradient.start(hidden, head, bias, ctx.needs_input_grad[:3], every=True)
        value = run(total)
        ctx.save_for_backward(*total.like(hidden, head, bias))
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (*(None if x is None else x * grads[0].to(x.dtype) for x in ctx.saved_tensors), None)


@dataclass(frozen=True, eq=False)
class _Work:
    """What all chunks share. `target` [M] and `scale`, 1/T as a number or [M, 1], belong to `hidden`; no graph."""

    objective: Objective
    rollouts: Rollouts
    credit: Credit
    totals: Totals
    hidden: Tensor
    head: Tensor
    bias: Tensor | None
    target: Tensor
    scale: float | Tensor
    chunk: int

    @staticmethod
    def of(
        objective: Objective,
        hidden: Tensor,
        head: Tensor,
        bias: Tensor | None,
        rollouts: Rollouts,
        credit: Credit,
        totals: Totals,
        chunk: int | None,
    ) -> _Work:
        if rollouts.token_ids is None:
            raise MissingInput(f"{objective.name} fused with the head needs token_ids: give Rollouts(token_ids=...)")
        mask, heat = rollouts.mask, rollouts.temperature
        target = rollouts.token_ids[mask]
        if hidden.dim() != 2 or head.dim() != 2 or hidden.shape != (len(target), head.shape[1]):
            raise TokenPOError(
                f"fused objective: hidden {list(hidden.shape)} and head {list(head.shape)} must be [M, H] and [V, H], "
                f"with M = {len(target)} response tokens"
            )
        scale = inverse_temperature(1.0 if heat is None else heat[mask], len(target), target, "fused objective")
        tensors = hidden.detach(), head.detach(), _detached(bias), target, scale
        return _Work(objective, rollouts, credit, totals, *tensors, chunk or chunk_rows(len(head)))

    def run(self, generator: torch.Generator | None, total: HeadGradient | None) -> Fused:
        """The loss; adds the gradients to `total`, if there is one."""
        # What is computed in was decided by `same_dtype`.
        with torch.no_grad(), torch.autocast(self.hidden.device.type, enabled=False):
            work = self._observed(generator)
            buffer = self.hidden.new_empty(min(self.chunk, len(self.hidden)), len(self.head))
            return _joined([work._part(rows, at, total, buffer) for rows, at in self._plan()])

    def _observed(self, generator: torch.Generator | None) -> _Work:
        if self.objective.scope == "row" or self.objective.has_observed(self.credit):
            return self
        everything = Batch(
            self.rollouts, self.credit, self._policy(slice(None), self._stats(slice(0, len(self.hidden))))
        )
        return dataclasses.replace(self, credit=self.objective.observed(everything, self.totals, generator).credit)

    def _plan(self) -> Iterator[tuple[slice, slice]]:
        """(rows, tokens) of whole responses that fit a chunk together; a longer one stands alone."""
        row = start = end = 0
        for index, length in enumerate(self.rollouts.mask.sum(1).tolist()):
            if end > start and end + length - start > self.chunk:
                yield slice(row, index), slice(start, end)
                row, start = index, end
            end += length
        yield slice(row, len(self.rollouts)), slice(start, end)

    def _part(self, rows: slice, at: slice, total: HeadGradient | None, buffer: Tensor) -> Fused:
        """Loss and gradients of some responses, whose logits fit the buffer or are formed twice."""
        h, y, scale = self.hidden[at], self.target[at], part(self.scale, at)
        fits = len(h) <= self.chunk
        stats = self._form(h, y, scale, buffer) if fits else self._stats(at)
        fused, g, g_entropy = self._loss(rows, stats)
        if total is None:
            return fused
        parts = live_rows(g, g_entropy, self.chunk)
        if total.hidden is not None and not all(isinstance(live, slice) for live in parts):
            total.hidden[at] = 0
        for live in parts:
            h_live, y_live, scale_live = h[live], y[live], part(scale, live)
            if not fits:
                self._form(h_live, y_live, scale_live, buffer)
            elif not isinstance(live, slice):
                keep_rows_(buffer, live)
            incoming = g[live], None if g_entropy is None else g_entropy[live]
            w, factor = ascent(buffer[: len(h_live)], stats.at(live), y_live, scale_live, *incoming, spend=True)
            total.add(_moved(live, at.start, len(h_live)), w, factor, h_live, self.head, spend=True)
        return fused

    def _form(self, hidden: Tensor, target: Tensor, scale: float | Tensor, buffer: Tensor) -> RowStats:
        """Statistics of tokens that fit a chunk; leaves the residual in the buffer."""
        logits = logits_of(hidden, self.head, self.bias, buffer)
        return residual(logits, target, scale, drift="entropy_drift" in self.objective.needs)

    def _stats(self, at: slice) -> RowStats:
        """Statistics of any number of tokens; their logits are forgotten."""
        parts = [slice(start, min(start + self.chunk, at.stop)) for start in range(at.start, at.stop, self.chunk)]
        buffer = self.hidden.new_empty(min(self.chunk, at.stop - at.start), len(self.head))
        found = [self._form(self.hidden[x], self.target[x], part(self.scale, x), buffer) for x in parts]
        return RowStats(*(torch.cat(column) for column in zip(*found, strict=True)))

    def _loss(self, rows: slice, stats: RowStats) -> tuple[Fused, Tensor, Tensor | None]:
        """The loss of some rows, and its gradients [M'] at their log-probabilities and, where it has one, entropies."""
        objective, piece = self.objective, self.rollouts.rows(rows)
        policy = self._policy(rows, stats)
        leaves = [policy.logprob]
        if objective.entropy_gradient and policy.entropy is not None:
            leaves.append(policy.entropy)
        with torch.enable_grad():
            for leaf in leaves:
                leaf.requires_grad_()
            loss = objective.loss(Batch(piece, self.credit.rows(rows), policy), self.totals)
        grads = torch.autograd.grad(loss.value, leaves, materialize_grads=True)
        seen = {field.name: _detached(getattr(policy, field.name)) for field in dataclasses.fields(policy)}
        fused = Fused(Loss(loss.value.detach(), loss.terms), Policy(**seen))
        return fused, grads[0][piece.mask], grads[1][piece.mask] if len(grads) > 1 else None

    def _policy(self, rows: slice, stats: RowStats) -> Policy:
        """Back to [N', T], zero on padding; exactly what the objective asks for."""
        mask, needs = self.rollouts.mask[rows], self.objective.needs

        def table(x: Tensor) -> Tensor:
            return x.new_zeros(mask.shape).masked_scatter_(mask, x)

        return Policy(
            table(stats.logprob),
            table(stats.entropy) if "entropy" in needs else None,
            table(stats.drift) if "entropy_drift" in needs else None,
        )


def _moved(at: slice | Tensor, by: int, count: int) -> slice | Tensor:
    return slice(by + at.start, by + at.start + count) if isinstance(at, slice) else at + by


def _joined(parts: list[Fused]) -> Fused:
    if len(parts) == 1:
        return parts[0]
    value = torch.stack([one.loss.value for one in parts]).sum()
    terms = {name: torch.cat([one.loss.terms[name] for one in parts]) for name in parts[0].loss.terms}
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(Policy):
        column = [getattr(one.policy, field.name) for one in parts]
        fields[field.name] = None if column[0] is None else torch.cat(column)
    return Fused(Loss(value, terms), Policy(**fields))
