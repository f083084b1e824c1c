"""The loss of a micro-batch, with graph, and what it was made of: from log-probabilities, or inside the model's head.

In the head, loss and gradients come out of the same chunks of logits (`tokenpo.core.fused`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...base.errors import NotFinite
from ...core.culprit import SOUND, broken
from ...core.fused import Fused, fused_loss
from ...core.ops.known import known
from ...core.types import Batch, Loss
from ..embedded.step import wanted
from .forward import Forward
from .head import head_work
from .phase_two import Step, rows_held, temperature_of
from .rows import PREFIX


@dataclass(frozen=True, eq=False)
class Learned:
    """A micro-batch of one rank.

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


def by_policy(forward: Forward, model: Any, inputs: Mapping[str, Any], step: Step, keys: Sequence[Any]) -> Learned:
    """From log-probabilities with graph.

    Args:
        model: as it is wrapped.
        step: the one that the micro-batch belongs to.
        keys: of the credit's signals.
    """
    policy = forward.policy(model, inputs, temperature_of(inputs))
    assert policy.entropy is not None
    rows, entropy = rows_held(step, inputs, keys), policy.entropy.detach()
    if rows is None:
        return Learned(policy.logprob.nan_to_num().sum() * 0.0, None, None, entropy)
    batch = Batch(*rows, wanted(policy, step.objective.needs))
    loss = step.objective.loss(batch, step.totals)
    return Learned(loss.value, batch, loss, entropy)


def in_head(forward: Forward, model: Any, inputs: Mapping[str, Any], step: Step, keys: Sequence[Any]) -> Learned:
    """The same in one piece of work with the head, which must be whole and plain."""
    rows, mask = rows_held(step, inputs, keys), inputs[f"{PREFIX}mask"]

    def work(hidden: Tensor, head: nn.Linear) -> tuple[Tensor, Fused | None]:
        scored = hidden[mask]
        if rows is None:
            graph = [x for x in (scored, head.weight, head.bias) if x is not None]
            return known(scored.new_zeros((), dtype=torch.float32), graph, [torch.zeros_like(x) for x in graph]), None
        fused = fused_loss(step.objective, scored, head.weight, *rows, step.totals, bias=head.bias)
        # By itself, as it must be found in the output of the pass.
        return fused.loss.value, fused

    value, fused = head_work(forward.trainer, model, inputs, work)
    if fused is None or rows is None:
        return Learned(value, None, None, torch.zeros(mask.shape, device=mask.device))
    return Learned(value, fused.batch(*rows), fused.loss, fused.entropy)


def require_finite(step: Step, batch: Batch, loss: Loss) -> None:
    """Before a backward pass that would make every weight NaN; where the metrics were just read, nothing is waited for.

    Raises:
        NotFinite: the loss is not; the message names the part of the objective that it comes from.
    """
    value = float(loss.value.detach())
    if math.isfinite(value):
        return
    cause = broken(step.objective, batch, step.totals) or SOUND
    raise NotFinite(f"the loss of {step.objective.name} is {value} in a micro-batch of TRL's: {cause}")
