"""The loss of a micro-batch, with graph, and what it was made of: from log-probabilities, or inside the model's head,
where loss and gradients come out of the same chunks of logits (`tokenpo.core.head.fused`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...base.errors import NotFinite, present
from ...core.head.fused import Fused
from ...core.ops import kl
from ...core.ops.known_gradient import known
from ...core.parts import ReferenceKl, Reweighted, walk
from ...core.types import Batch, Loss
from ...core.update import Update
from .forward import Forward, head_work
from .updates import ROW, padded


@dataclass(frozen=True, eq=False)
class MicroLoss:
    """A micro-batch of one rank; [M, T] tensors are as wide as the rollout batch.

    Args:
        value: the loss with graph; a zero with graph where no row has a response token, as every rank takes part in
            the backward pass.
        batch, loss: None there.
        entropy: [M, T] of the current policy, detached, nats.
    """

    value: Tensor
    batch: Batch | None
    loss: Loss | None
    entropy: Tensor


def by_policy(forward: Forward, model: Any, inputs: Mapping[str, Any], update: Update | None) -> MicroLoss:
    """From log-probabilities with graph.

    Args:
        model: as it is wrapped.
        update: the one that the micro-batch belongs to; None where none of its rows has a response token.
    """
    mask = None if update is None else update.of(inputs[ROW])[0].mask
    policy = forward.policy(model, inputs)
    if update is None or mask is None or not mask.any():
        return MicroLoss(policy.logprob.nan_to_num().sum() * 0.0, None, None, policy.need("entropy").detach())
    policy = padded(policy, mask.shape[1])
    batch, loss = update.evaluate(policy, inputs[ROW])
    return MicroLoss(loss.value, batch, loss, policy.need("entropy").detach())


def in_head(forward: Forward, model: Any, inputs: Mapping[str, Any], update: Update | None) -> MicroLoss:
    """The same in one piece of work with the head, which must be whole and plain."""
    shape, device = inputs["completion_ids"].shape, inputs["completion_ids"].device
    if update is None:
        mask = torch.zeros(shape, dtype=torch.bool, device=device)
    else:
        mask = update.of(inputs[ROW])[0].mask[:, : shape[1]]

    def work(hidden: Tensor, head: nn.Linear) -> tuple[Tensor, tuple[Batch, Fused] | None]:
        scored = hidden[mask]
        if update is None or not len(scored):
            graph = [x for x in (scored, head.weight, head.bias) if x is not None]
            return known(scored.new_zeros((), dtype=torch.float32), graph, [torch.zeros_like(x) for x in graph]), None
        batch, fused = update.evaluate_head(scored, head.weight, inputs[ROW], bias=head.bias)
        # Apart from the rest, as DDP looks for the loss in the output of the pass.
        return fused.loss.value, (batch, fused)

    value, made = head_work(forward.trainer, model, inputs, work)
    if made is None:
        return MicroLoss(value, None, None, torch.zeros(shape, device=device))
    batch, fused = made
    return MicroLoss(value, batch, fused.loss, fused.entropy)


def require_finite(update: Update, rows: Tensor, scored: MicroLoss) -> None:
    """To be called before a backward pass that would make every weight NaN.

    Raises:
        NotFinite: the loss is not; the message names the part of the objective that it comes from.
    """
    value = float(scored.value.detach())
    if not math.isfinite(value):
        cause = update.culprit(present(scored.batch, "the batch of a loss").policy, rows)
        raise NotFinite(f"the loss of {update.objective.name} is {value} in a micro-batch of TRL's: {cause}")


@torch.no_grad()
def measured(accelerator: Any, scored: MicroLoss, update: Update | None) -> dict[str, float]:
    """TRL's metrics `entropy`, `clip_ratio/*` and `kl` over the micro-batches of all ranks, each of which calls it."""
    batch, entropy = scored.batch, scored.entropy
    # tokens, sums over them of entropy, clipped below, clipped above and divergence; least and most of a response
    local = entropy.new_tensor([0.0, 0.0, 0.0, 0.0, 0.0, math.inf, -math.inf], dtype=torch.float32)
    divergence = None
    if batch is not None and scored.loss is not None:
        mask, terms = batch.mask, scored.loss.terms
        clipped = terms["clipped"].bool() & mask
        below = clipped & (terms["ratio"] < 1)
        above = clipped & ~below
        divergence = _divergence(batch, update)
        length = mask.sum(1)
        shares = [(side.sum(1) / length)[length > 0] for side in (below, above)]
        sums = [mask, entropy.where(mask, 0.0), below, above, local[:0] if divergence is None else divergence]
        local = torch.stack([*(x.sum().float() for x in sums), shares[0].min(), shares[1].max()])
    ranks = accelerator.gather(local[None])
    n, entropies, low, high, moved = ranks[:, :5].sum(0).tolist()
    least, most = (float(ranks[:, 5].min()), float(ranks[:, 6].max())) if n else (math.nan, math.nan)
    n = n or math.nan
    metrics = {
        "entropy": entropies / n,
        "clip_ratio/low_mean": low / n,
        "clip_ratio/high_mean": high / n,
        "clip_ratio/region_mean": (low + high) / n,
        "clip_ratio/low_min": least,
        "clip_ratio/high_max": most,
    }
    return metrics if divergence is None else metrics | {"kl": moved / n}


def _divergence(batch: Batch, update: Update | None) -> Tensor | None:
    """k3 from the reference [M, T], as TRL shows it: times the ratio where the penalty that it learns from has one."""
    if batch.rollouts.ref_logprob is None:
        return None
    divergence = kl.k3(torch.where(batch.mask, batch.rollouts.ref_logprob - batch.policy.logprob.detach(), 0.0))
    for part in walk(update.objective.penalties if update is not None else ()):
        if isinstance(part, Reweighted) and isinstance(part.penalty, ReferenceKl):
            divergence = part.ratio(batch) * divergence
    return divergence
