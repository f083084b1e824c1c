"""The loss of an objective and its gradients from hidden states and the head, a few whole responses at a time.

Losses of disjoint rows add up. So the logits of a chunk give its loss and, from the residual of their softmax, the
gradients to hidden states and head at once: three matrix products, and never more logits than one chunk. A response
longer than a chunk takes a fourth product, which computes its logits again. The two backward products skip tokens whose
gradient is exactly zero (clipped tokens, or tokens without advantage).

For an objective of batch scope, call `observe` first, or pass the whole step, whose statistics then take a further
pass.

Axes: N responses, T their tokens, M true entries of the mask [N, T] in the order of `mask.nonzero()`, H hidden size,
V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...base.errors import MissingInput, NotFinite, TokenPOError, present
from ..objective import Objective
from ..ops.known_gradient import known
from ..types import Batch, Credit, Loss, Policy, Rollouts, Totals
from .projection import HeadGradient, chunk_rows, keep_rows_, logits_of, same_dtype, tile_rows
from .softmax import RowStats, ascent, part, residual, wide
from .teacher import AnyTeacher
from .token_stats import joined, live_rows

# All responses, all tokens.
EVERYTHING = slice(None), slice(None)


@dataclass(frozen=True, eq=False)
class Fused:
    """A loss and the policy's predictions that it was computed from.

    Args:
        policy: the fields that the objective needs, detached.
        entropy: [N, T] nats, detached; also computed if the objective does not need it.
        pull: [N, T], the gradient of the loss to each log-probability.
    """

    loss: Loss
    policy: Policy
    entropy: Tensor
    pull: Tensor

    def batch(self, rollouts: Rollouts, credit: Credit) -> Batch:
        """The batch of the loss, with `pull` in `logprob.grad`, as after a backward pass."""
        batch = Batch.unchecked(rollouts, credit, self.policy)
        batch.policy.logprob.grad = self.pull
        return batch


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
    terms: Collection[str] | None = None,
    teacher: AnyTeacher | None = None,
) -> Fused:
    """The loss of any rows of an optimiser step, with graph to `hidden`, `head` and `bias`.

    All gradients are computed here; the backward pass only scales them.

    Args:
        hidden, head, bias, chunk, teacher: as in `token_stats`, for the response tokens of the rows in their order.
        rollouts: with token_ids; without `temperature` it is 1; with kept_ids the softmax is over these tokens.
        credit: from `prepare`, or from `observe` for an objective of batch scope.
        totals: denominators of the whole optimiser step.
        generator: for `observe`, if that is called here.
        terms: names of the loss's terms to keep; None keeps all.

    Raises:
        MissingInput: token ids, a needed teacher, or another input that the objective needs is absent.
        TokenPOError: shapes do not match, the rows are an unobserved part of a step, or a term is unknown.
    """
    work = Work(objective, *same_dtype(hidden, head, bias), rollouts, credit, totals, chunk or 0, terms, teacher)
    # Not `work`'s tensors: under autocast the gradient of a float32 head must stay float32.
    inputs = hidden, head, bias
    wanted = [torch.is_grad_enabled() and x is not None and x.requires_grad for x in inputs]
    if not any(wanted):
        return work.run(generator, None)
    once = head.dtype == work.head.dtype and work.fits
    total = HeadGradient.start(work.hidden, work.head, work.bias, wanted, every=True, once=once)
    fused = work.run(generator, total)
    value = known(fused.loss.value, inputs, total.like(hidden, head, bias))
    return dataclasses.replace(fused, loss=Loss(value, fused.loss.terms))


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
    terms: Collection[str] | None = None,
    teacher: AnyTeacher | None = None,
) -> tuple[Fused, Tensor]:
    """`fused_loss` without graph: adds the gradients in place to `head.grad` and `bias.grad`, which must be leaves.

    Returns the detached loss, and its gradient to `hidden` [M, H]. A float32 head needs no second buffer of its size.
    """
    for name, x in (("head", head), ("bias", bias)):
        if x is not None and x.requires_grad and not x.is_leaf:
            raise TokenPOError(f"fused_gradient: {name} is computed from something else: use fused_loss")
    work = Work(objective, *same_dtype(hidden, head, bias), rollouts, credit, totals, chunk or 0, terms, teacher)
    # Add to an earlier gradient of the head in place if its dtype is wide enough, or each number is added only once.
    own = head.grad if head.requires_grad and head.dtype == wide(head.dtype) else None
    wanted = [True, head.requires_grad and own is None, bias is not None and bias.requires_grad]
    once = head.dtype == work.head.dtype and work.fits
    total = HeadGradient.start(work.hidden, work.head, work.bias, wanted, every=True, once=once)
    if own is not None:
        total.head, total.blank = own, False
    fused = work.run(generator, total)
    total.settle()
    for x, added in ((head, total.head), (bias, total.bias)):
        if x is not None and added is not None and added is not x.grad:
            _add(x, added)
    return fused, present(total.hidden, "the gradient of hidden").to(hidden.dtype)


@dataclass(eq=False)
class Work:
    """The inputs of a fused loss, checked and without graph; a `chunk` of 0 takes the default.

    Attributes:
        place: [M], each token's place in the flattened mask [N · T].
        target: [M], its id.
        scale: 1/T, a number or [M, 1].
        kept: [M, K], the tokens that its softmax is over; None is the whole vocabulary.
    """

    objective: Objective
    hidden: Tensor
    head: Tensor
    bias: Tensor | None
    rollouts: Rollouts
    credit: Credit
    totals: Totals
    chunk: int
    terms: Collection[str] | None
    teacher: AnyTeacher | None = None
    place: Tensor = field(init=False)
    target: Tensor = field(init=False)
    scale: float | Tensor = field(init=False)
    kept: Tensor | None = field(init=False)

    def __post_init__(self) -> None:
        if self.rollouts.token_ids is None:
            name = self.objective.name
            raise MissingInput(f"{name} fused with the head needs token_ids: give Rollouts(token_ids=...)")
        mask, heat, kept = self.rollouts.mask, self.rollouts.temperature, self.rollouts.kept_ids
        self.hidden, self.head, self.bias = self.hidden.detach(), self.head.detach(), _detached(self.bias)
        # Waits for the device while it has nothing to do, so that later selections of tokens need not wait.
        self.place = mask.flatten().nonzero().squeeze(-1)
        self.target = self.rollouts.token_ids.flatten()[self.place]
        self.kept = None if kept is None else kept.flatten(0, 1)[self.place]
        m, hidden, head = len(self.target), self.hidden, self.head
        if hidden.dim() != 2 or head.dim() != 2 or hidden.shape != (m, head.shape[1]):
            raise TokenPOError(
                f"fused objective: hidden {list(hidden.shape)} and head {list(head.shape)} must be [M, H] and [V, H], "
                f"with M = {m} response tokens"
            )
        # `Rollouts` has checked that it is > 0; another check would wait for the device.
        self.scale = 1.0 if heat is None else heat.flatten()[self.place].reciprocal().unsqueeze(-1)
        self.chunk = self.chunk or chunk_rows(len(head), head.dtype, head.device)
        if self.objective.teacher_beta is None:
            self.teacher = None
        elif self.teacher is None:
            raise MissingInput(f"{self.objective.name} fused with the head needs teacher_divergence: give teacher=...")
        else:
            self.teacher = self.teacher.ready(m, len(head), self.kept)

    @property
    def fits(self) -> bool:
        return len(self.hidden) <= self.chunk

    def run(self, generator: torch.Generator | None, total: HeadGradient | None) -> Fused:
        """The loss; adds the gradients to `total` if that is given."""
        # `same_dtype` has already chosen the dtype of the products.
        with torch.no_grad(), torch.autocast(self.hidden.device.type, enabled=False):
            work = self._observed(generator)
            buffer = self.hidden.new_empty(min(self.chunk, len(self.hidden)), len(self.head))
            return _joined([work._part(rows, at, total, buffer) for rows, at in self._plan()])

    def _observed(self, generator: torch.Generator | None) -> Work:
        """The work with the credit after `observe`."""
        if self.objective.scope == "row" or self.objective.has_observed(self.credit):
            return self
        stats = self._stats(slice(0, len(self.hidden)))
        everything = Batch(self.rollouts, self.credit, self._policy(*EVERYTHING, stats))
        return dataclasses.replace(self, credit=self.objective.observed(everything, self.totals, generator).credit)

    def _plan(self) -> Iterator[tuple[slice, slice]]:
        """(rows, tokens) of whole responses that together fit a chunk; a response that is longer comes alone."""
        if self.fits or (self.rollouts.trajectory is not None and self.objective.of_response):
            # No need to wait for the device to count tokens. A trajectory that is read whole is not cut.
            yield slice(None), slice(0, len(self.hidden))
            return
        row = start = end = 0
        for index, length in enumerate(self.rollouts.mask.sum(1).tolist()):
            if end > start and end + length - start > self.chunk:
                yield slice(row, index), slice(start, end)
                row, start = index, end
            end += length
        yield slice(row, len(self.rollouts)), slice(start, end)

    def _part(self, rows: slice, at: slice, total: HeadGradient | None, buffer: Tensor) -> Fused:
        """Loss and gradients of some responses; if their logits do not fit the buffer, they are computed twice."""
        fits = at.stop - at.start <= self.chunk
        stats, slope = self._form(at, buffer) if fits else (self._stats(at), None)
        fused, incoming = self._loss(rows, at, stats)
        if total is None:
            return fused
        parts = live_rows(incoming, self.head, self.chunk)
        if total.hidden is not None and not all(isinstance(live, slice) for live in parts):
            total.hidden[at] = 0
        for live in parts:
            place = _moved(live, at.start)
            if not fits:
                _, slope = self._form(place, buffer)
            elif not isinstance(live, slice):
                keep_rows_(buffer, live)
            h, y, scale = (part(x, place) for x in (self.hidden, self.target, self.scale))
            live_slope = part(slope, live) if fits else slope
            grads = (part(g, live) for g in incoming)
            w, factor = ascent(buffer[: len(h)], stats.at(live), y, scale, *grads, slope=live_slope, spend=True)
            total.add(place, w, factor, h, self.head, spend=True)
        return fused

    def _form(self, at: slice | Tensor, buffer: Tensor) -> tuple[RowStats, Tensor | None]:
        """(statistics of tokens that fit a chunk, slope of their divergence); leaves the residual in the buffer."""
        hidden, target, scale = (part(x, at) for x in (self.hidden, self.target, self.scale))
        logits = logits_of(hidden, self.head, self.bias, buffer, part(self.kept, at))
        slope, divergence, beta = None, None, self.objective.teacher_beta
        if self.teacher is not None and beta is not None:
            divergence, slope = self.teacher.compare(at, logits, scale, beta)
        stats = residual(logits, target, scale, drift="entropy_drift" in self.objective.needs)
        return stats if divergence is None else stats._replace(divergence=divergence), slope

    def _stats(self, at: slice) -> RowStats:
        parts = [slice(start, min(start + self.chunk, at.stop)) for start in range(at.start, at.stop, self.chunk)]
        buffer = self.hidden.new_empty(min(self.chunk, at.stop - at.start), len(self.head))
        return joined([self._form(x, buffer)[0] for x in parts])

    def _loss(self, rows: slice, at: slice, stats: RowStats) -> tuple[Fused, list[Tensor | None]]:
        """The loss of some rows, and its gradients [M'] to log-probabilities, entropies and divergences, or None."""
        objective, piece, credit = self.objective, self.rollouts.rows(rows), self.credit.rows(rows)
        policy = self._policy(rows, at, stats)
        entropy = policy.entropy if objective.entropy_gradient else None
        fields = [policy.logprob, entropy, policy.teacher_divergence]
        leaves = [x for x in fields if x is not None]
        with torch.enable_grad():
            for leaf in leaves:
                leaf.requires_grad_()
            loss = objective.loss(Batch.unchecked(piece, credit, policy), self.totals, self.terms)
        grads = torch.autograd.grad(loss.value, leaves, materialize_grads=True)
        policy = dataclasses.replace(policy, **{name: _detached(x) for name, x in vars(policy).items()})
        fused = Fused(Loss(loss.value.detach(), loss.terms), policy, self._table(rows, at, stats.entropy), grads[0])
        of_tokens = iter([x.flatten()[self._inside(rows, at)] for x in grads])
        try:
            # Checked only now, as a check waits for the device, which by now has the whole loss queued.
            Batch(piece, credit, policy)
        except NotFinite as error:
            raise error if error.row is None else NotFinite(str(error), error.row + (rows.start or 0)) from error
        return fused, [None if x is None else next(of_tokens) for x in fields]

    def _policy(self, rows: slice, at: slice, stats: RowStats) -> Policy:
        """The policy's fields [N', T] that the objective needs, zero on padding."""
        needs = self.objective.needs
        return Policy(
            self._table(rows, at, stats.logprob),
            self._table(rows, at, stats.entropy) if "entropy" in needs else None,
            self._table(rows, at, stats.drift) if "entropy_drift" in needs else None,
            self._table(rows, at, stats.divergence) if "teacher_divergence" in needs else None,
        )

    def _table(self, rows: slice, at: slice, x: Tensor) -> Tensor:
        """x [M'] at its tokens in [N', T], zero elsewhere."""
        shape = self.rollouts.mask[rows].shape
        return x.new_zeros(shape.numel()).index_copy_(0, self._inside(rows, at), x).view(shape)

    def _inside(self, rows: slice, at: slice) -> Tensor:
        """[M'] places of the tokens `at` in the flattened table [N' · T] of the responses `rows`."""
        return self.place[at] - (rows.start or 0) * self.rollouts.mask.shape[1]


def _moved(at: slice | Tensor, by: int) -> slice | Tensor:
    return slice(by + at.start, by + at.stop) if isinstance(at, slice) else at + by


def _joined(parts: list[Fused]) -> Fused:
    if len(parts) == 1:
        return parts[0]
    value = torch.stack([one.loss.value for one in parts]).sum()
    terms = {name: torch.cat([one.loss.terms[name] for one in parts]) for name in parts[0].loss.terms}
    present_fields = [name for name, x in vars(parts[0].policy).items() if x is not None]
    policy = Policy(**{name: torch.cat([getattr(one.policy, name) for one in parts]) for name in present_fields})
    entropy, pull = (torch.cat([getattr(one, name) for one in parts]) for name in ("entropy", "pull"))
    return Fused(Loss(value, terms), policy, entropy, pull)


def _detached(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.detach()


def _add(x: Tensor, added: Tensor) -> None:
    """Adds a gradient, which may have a wider dtype, to a leaf's `.grad`."""
    if x.grad is None:
        x.grad = added.to(x.dtype)
        return
    rows = tile_rows(added)
    for start in range(0, len(added), rows):
        x.grad[start : start + rows] += added[start : start + rows]
