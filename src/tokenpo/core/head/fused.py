"""The loss of an objective and its gradients from hidden states and the head, a few whole responses at a time.

Losses of disjoint rows add up. So the logits of a chunk give its loss and, from the residual of their softmax, the
gradients to hidden states and head at once: three matrix products, and never more logits than one chunk. A response
longer than a chunk takes a fourth product, which computes its logits again. The two backward products skip tokens whose
gradient is exactly zero (clipped tokens, or tokens without advantage).

For an objective of batch scope, call `observe` first, or pass the whole step, whose statistics then take a further
pass.

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
        rollouts: with token_ids; without `temperature` it is 1.
        credit: from `prepare`, or from `observe` for an objective of batch scope.
        totals: denominators of the whole optimiser step.
        bias: [V], if the head has one.
        generator: for `observe`, if that is called here.
        chunk: number of tokens whose logits exist at a time, at least 512; by default 16 MB of logits, on a GPU a 32nd
            of its memory and at most 2.5 GiB.
        terms: names of the loss's terms to keep; None keeps all.
        teacher: the teacher on these tokens, for an objective that reads `Policy.teacher_divergence`.

    Raises:
        MissingInput: token ids, a needed teacher, or another input that the objective needs is absent.
        TokenPOError: shapes do not match, the rows are a part of a step and lack the statistics of the whole, or a term
            is unknown.
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
    teacher: Teacher | None = None,
    lean: bool = False,
) -> tuple[Fused, Tensor]:
    """`fused_loss` without graph: adds the gradients in place to `head.grad` and `bias.grad`, which must be leaves.

    A float32 head needs no second buffer of its size, in whatever dtype autocast computes.

    Args:
        lean: split the vocabulary into tiles too, for a fourth product: at most 512 tokens x 2048 tokens of the
            vocabulary exist at a time (4096 x 8192 on a GPU), and `chunk` is not used.

    Returns:
        The detached loss, and its gradient to `hidden` [M, H], for `hidden.backward`.

    Raises:
        MissingInput, TokenPOError: as `fused_loss`; or head or bias is no leaf.
    """
    for name, x in (("head", head), ("bias", bias)):
        if x is not None and x.requires_grad and not x.is_leaf:
            raise TokenPOError(f"fused_gradient: {name} is computed from something else: use fused_loss")
    work = Work(objective, *same_dtype(hidden, head, bias), rollouts, credit, totals, chunk or 0, terms, teacher)
    # Add to an earlier gradient of the head in place if its dtype is wide enough, or each number is added only once.
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
    """Adds a gradient, which may have a wider dtype, to a leaf's `.grad`."""
    if x.grad is None:
        x.grad = added.to(x.dtype)
        return
    rows = tile_rows(added)
    for start in range(0, len(added), rows):
        x.grad[start : start + rows] += added[start : start + rows]
