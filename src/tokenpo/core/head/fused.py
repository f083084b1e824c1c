"""An objective straight from hidden states and the head, a few whole responses at a time.

Losses of disjoint rows add up, so a chunk's logits give its loss and, from the residual of their softmax, the gradients
of hidden states and head at once: three matrix products, and never more logits than a chunk. A response longer than a
chunk takes a fourth product, which forms its logits again. The two backward products skip tokens whose gradient is
exactly zero (no advantage, clipped).

An objective of batch scope must have been observed, or the rows are the whole step and their statistics take a pass.

Axes: M true entries of the mask [N, T] in the order of `mask.nonzero()`, H hidden size, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

import torch
from torch import Tensor

from ...base.errors import TokenPOError, present
from ..objective import Objective
from ..ops.known_gradient import known
from ..types import Credit, Loss, Rollouts, Totals
from .fused_pass import Fused, Work
from .projection import HeadGradient, same_dtype, tile_rows
from .softmax import wide
from .teacher import Teacher

__all__ = ["Fused", "fused_gradient", "fused_loss"]


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
    teacher: Teacher | None = None,
) -> Fused:
    """The loss of any rows of an optimiser step, with graph to `hidden`, `head` and `bias`.

    All gradients are computed here; the backward pass only scales them.

    Args:
        hidden: [M, H], the final hidden state that predicts each response token.
        head: [V, H] output embedding.
        rollouts: with token_ids; temperature is 1 where it has none.
        credit: of `prepare`, or of `observe` for an objective of batch scope.
        totals: denominators of the whole optimiser step.
        bias: [V], if the head has one.
        generator: of `observe`, where it has not been called.
        chunk: tokens whose logits are alive at a time, 512 at least; by default 16 MB, or a 32nd of a GPU's
            memory and at most 2.5 GiB.
        terms: names of the loss's terms to keep; None keeps all.
        teacher: of an objective that reads `Policy.teacher_divergence`, on these tokens.

    Raises:
        MissingInput: no token ids, no teacher where one is needed, or an input that the objective needs is absent.
        TokenPOError: shapes that do not belong together, a part of a step without the statistics of the whole, or an
            unknown term.
    """
    work = Work(objective, *same_dtype(hidden, head, bias), rollouts, credit, totals, chunk or 0, terms, teacher)
    # The caller's tensors: under autocast the gradient of a float32 head stays float32.
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
    teacher: Teacher | None = None,
    lean: bool = False,
) -> tuple[Fused, Tensor]:
    """`fused_loss` without graph: adds the gradients to `head.grad` and `bias.grad` of leaves in place.

    A float32 head needs no second buffer of its size, whatever dtype autocast computes in.

    Args:
        lean: take the vocabulary in tiles too, for a fourth product: at most 512 tokens x 2048 of the vocabulary are
            held (on a GPU 4096 x 8192), and `chunk` is not used.

    Returns:
        The loss, detached, and its gradient to `hidden` [M, H], for `hidden.backward`.

    Raises:
        MissingInput, TokenPOError: as `fused_loss`; or head or bias is no leaf.
    """
    for name, x in (("head", head), ("bias", bias)):
        if x is not None and x.requires_grad and not x.is_leaf:
            raise TokenPOError(f"fused_gradient: {name} is computed from something else: use fused_loss")
    work = Work(objective, *same_dtype(hidden, head, bias), rollouts, credit, totals, chunk or 0, terms, teacher)
    # An earlier gradient of the head is added to in place, if its dtype is wide enough or every number is added once.
    own = head.grad if head.requires_grad and (lean or head.dtype == wide(head.dtype)) else None
    wanted = [True, head.requires_grad and own is None, bias is not None and bias.requires_grad]
    once = head.dtype == work.head.dtype and (lean or work.fits)
    total = HeadGradient.start(work.hidden, work.head, work.bias, wanted, every=True, once=once)
    if own is not None:
        total.head, total.blank = own, False
    fused = work.run_lean(generator, total) if lean else work.run(generator, total)
    total.settle()
    for x, added in ((head, total.head), (bias, total.bias)):
        if x is not None and added is not None and added is not x.grad:
            _add(x, added)
    return fused, present(total.hidden, "the gradient of hidden").to(hidden.dtype)


def _add(x: Tensor, added: Tensor) -> None:
    """Adds a gradient, perhaps of a wider dtype, to that of a leaf."""
    if x.grad is None:
        x.grad = added.to(x.dtype)
        return
    rows = tile_rows(added)
    for start in range(0, len(added), rows):
        x.grad[start : start + rows] += added[start : start + rows]
