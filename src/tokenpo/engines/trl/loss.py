"""The loss of a micro-batch, with graph, and what it was made of: from log-probabilities, or inside the model's head.

In the head, loss and gradients come out of the same chunks of logits (`tokenpo.core.head.fused`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...base.errors import NotFinite
from ...core.head.fused import Fused
from ...core.head.known_gradient import known
from ...core.learner import Update
from ...core.ops import kl
from ...core.parts import ReferenceKl, Reweighted, walk
from ...core.types import Batch, Loss
from .forward import Forward, head_work
from .updates import ROW, padded


@dataclass(frozen=True, eq=False)
class MicroLoss:
    """A micro-batch of one rank; [M, T] tensors are as wide as the rollout batch.

    Args:
        value: the loss with graph; a zero with graph where no row has a response token, as every rank takes part in
            the backward pass.
        batch, loss: None there.
        entropy: [M, T] of the current policy, detached.
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
    rollouts = None if update is None else update.of(inputs[ROW])[0]
    policy = forward.policy(model, inputs)
    assert policy.entropy is not None
    if update is None or rollouts is None or not rollouts.mask.any():
        return MicroLoss(policy.logprob.nan_to_num().sum() * 0.0, None, None, policy.entropy.detach())
    policy = padded(policy, rollouts.mask.shape[1])
    assert policy.entropy is not None
    batch, loss = update.evaluate(policy, inputs[ROW])
    return MicroLoss(loss.value, batch, loss, policy.entropy.detach())


def in_head(forward: Forward, model: Any, inputs: Mapping[str, Any], update: Update | None) -> MicroLoss:
    """The same in one piece of work with the head, which must be whole and plain."""
    shape, device = inputs["completion_ids"].shape, inputs["completion_ids"].device
    rollouts = None if update is None else update.of(inputs[ROW])[0]
    mask = torch.zeros(shape, dtype=torch.bool, device=device) if rollouts is None else rollouts.mask[:, : shape[1]]

    def work(hidden: Tensor, head: nn.Linear) -> tuple[Tensor, tuple[Batch, Fused] | None]:
        scored = hidden[mask]
        if update is None or not len(scored):
            graph = [x for x in (scored, head.weight, head.bias) if x is not None]
            return known(scored.new_zeros((), dtype=torch.float32), graph, [torch.zeros_like(x) for x in graph]), None
        batch, fused = update.evaluate_head(scored, head.weight, inputs[ROW], bias=head.bias)
        # By itself, as it must be found in the output of the pass.
        return fused.loss.value, (batch, fused)

    value, found = head_work(forward.trainer, model, inputs, work)
    if found is None:
        return MicroLoss(value, None, None, torch.zeros(shape, device=device))
    batch, fused = found
    return MicroLoss(value, batch, fused.loss, fused.entropy)


def require_finite(update: Update, rows: Tensor, scored: MicroLoss) -> None:
    """Before a backward pass that would make every weight NaN; where the metrics were just read, nothing is waited for.

    Raises:
        NotFinite: the loss is not; the message names the part of the objective that it comes from.
    """
    assert scored.batch is not None
    value = float(scored.value.detach())
    if not math.isfinite(value):
        cause = update.culprit(scored.batch.policy, rows)
        raise NotFinite(f"the loss of {update.objective.name} is {value} in a micro-batch of TRL's: {cause}")


@torch.no_grad()
def measured(accelerator: Any, scored: MicroLoss, update: Update | None) -> dict[str, float]:
    """TRL's names, `entropy`, `clip_ratio/*` and `kl`, over the micro-batch of every rank; all ranks call it.

    Args:
        update: that the micro-batch belongs to.
    """
    batch, loss, entropy = scored.batch, scored.loss, scored.entropy
    zero = entropy.new_zeros((), dtype=torch.float32)
    tokens = entropies = low = high = moved = zero
    fewest = most = torch.full_like(zero, math.nan)
    if batch is not None and loss is not None:
        mask, clipped = batch.mask, loss.terms["clipped"].bool() & batch.mask
        below = clipped & (loss.terms["ratio"] < 1)
        above = clipped & ~below
        tokens, entropies = mask.sum(), entropy.where(mask, 0.0).sum()
        low, high = below.sum(), above.sum()
        length = mask.sum(1)
        fewest = (below.sum(1) / length)[length > 0].min()
        most = (above.sum(1) / length)[length > 0].max()
        if batch.rollouts.ref_logprob is not None:
            away = torch.where(mask, batch.rollouts.ref_logprob - batch.policy.logprob.detach(), 0.0)
            divergence = kl.k3(away)
            # As TRL shows it, with the ratio that it learns from.
            for part in walk(update.objective.penalties if update is not None else ()):
                if isinstance(part, Reweighted) and isinstance(part.penalty, ReferenceKl):
                    divergence = part.ratio(batch) * divergence
            moved = divergence.sum()
    row = torch.stack([value.float() for value in (tokens, entropies, low, high, moved, fewest, most)])
    ranks = accelerator.gather(row[None])
    n, entropies, low, high, moved = ranks[:, :5].sum(0).tolist()
    n = n or math.nan
    metrics = {
        "entropy": entropies / n,
        "clip_ratio/low_mean": low / n,
        "clip_ratio/high_mean": high / n,
        "clip_ratio/region_mean": (low + high) / n,
        "clip_ratio/low_min": _of_known(ranks[:, 5], min),
        "clip_ratio/high_max": _of_known(ranks[:, 6], max),
    }
    if batch is not None and batch.rollouts.ref_logprob is not None:
        metrics["kl"] = moved / n
    return metrics


def _of_known(values: Tensor, choose: Callable[[list[float]], float]) -> float:
    known = [x for x in values.tolist() if not math.isnan(x)]
    return choose(known) if known else math.nan
