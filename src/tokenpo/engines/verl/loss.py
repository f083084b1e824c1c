"""Phase two in verl's workers: the loss of one micro-batch, its denominators counted over the optimiser step.

verl's engines average gradients over the data-parallel ranks and add up micro-batches, so a sum over ranks takes the
factor `dp_size`, as in verl's own losses.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils.metric import Metric
from verl.workers.utils.padding import no_padding_2_padding

from ...base.errors import MissingInput
from ...core.objective import Objective
from ...core.types import Batch, Credit, Loss, Policy, Rollouts, Totals
from . import record
from .layout import GROUP, REWARD, SEQUENCES, padded, signal_fields, token_facts

# Found in verl's metrics after an update, it shows that this loss was the one called. reduce_metrics takes the
# smallest over the optimiser steps of an update, for the "min" in its name: that is the first, where the policy still
# is the one that sampled.
DRIFT = "tokenpo_drift_min"


@dataclass(frozen=True)
class WorkerLoss:
    """What the driver sends to every worker: the losses of one pass of an objective, on rows in verl's layout.

    Rows, credit and denominators come with verl's batch, since one call to the workers makes all of its optimiser
    steps: what is left of an `Update` is the objective of the pass.

    Args:
        objective: of the run; with its passes, so that all of them find the signals under the same names.
        length: the longest response allowed.
        temperature: at which the responses were sampled.
        part: pass of the objective.
        report: directory for the terms of the rows that the driver marked.
    """

    objective: Objective
    length: float
    temperature: float = 1.0
    part: int = 0
    report: str | None = None

    def __call__(
        self, model_output: dict[str, Any], data: TensorDict, dp_group: Any = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """verl's (loss, metrics) of one micro-batch.

        Args:
            model_output: "log_probs" and "entropy", nested over prompts and responses.
            data: what phase one put into verl's batch; `batch_num_tokens` and `dp_size` are of the optimiser step.
        """
        mask = padded(data["response_mask"]).bool()
        logprob = no_padding_2_padding(model_output["log_probs"], data)
        ranks = data["dp_size"]
        live = mask.any(1)
        if not live.any():  # a micro-batch of padding rows: its graph stays, so that every rank runs backward
            nothing = torch.where(mask, logprob, 0.0).sum()
            return nothing, {name: Metric("sum", 0.0) for name in _METRICS}
        objective = self.objective.split()[self.part]
        batch = self._batch(objective, model_output, data, logprob).rows(live)
        totals = Totals(float(data["batch_num_tokens"]), float(data[SEQUENCES][live][0]), float(self.length))
        loss = objective.loss(batch, totals, ("clipped", "weight", "penalty") if self.report is None else None)
        if self.report is not None:
            record.write(self.report, data, live.nonzero()[:, 0].tolist(), batch, loss)
        return loss.value * ranks, _metrics(batch, loss, totals, ranks)

    def _batch(self, objective: Objective, model_output: dict[str, Any], data: TensorDict, logprob: Tensor) -> Batch:
        entropy = None
        if "entropy" in objective.needs:
            if "entropy" not in model_output:
                raise MissingInput(
                    f"{objective.name} needs entropy: set actor_rollout_ref.actor.calculate_entropy=True"
                )
            entropy = no_padding_2_padding(model_output["entropy"], data)
        facts = token_facts(data, objective.needs, self.temperature)
        rollouts = Rollouts(reward=data[REWARD], group=data[GROUP], **facts)
        named = signal_fields(self.objective).items()
        signals = {part: padded(data[field]) for part, field in named if field in data}
        return Batch(rollouts, Credit(padded(data["advantages"]), signals), Policy(logprob, entropy))


_METRICS = ("pg_loss", "pg_clipfrac", "ppo_kl", "tokenpo_weight", "tokenpo_penalty", DRIFT)


def _metrics(batch: Batch, loss: Loss, totals: Totals, ranks: int) -> dict[str, Any]:
    """Shares of the optimiser step, to be added up over its micro-batches and ranks; verl's names where it has one."""
    terms, mask = loss.terms, batch.mask
    with torch.no_grad():
        log_ratio = batch.policy.logprob - batch.rollouts.old_logprob

        def mean(per_token: Tensor) -> float:
            return float(per_token[mask].double().sum()) * ranks / totals.tokens

        values = (
            float(loss.value.detach()) * ranks,
            mean(terms["clipped"]),
            mean(-log_ratio),
            mean(terms["weight"]),
            mean(terms["penalty"]),
            mean(log_ratio.abs()),
        )
    return {name: Metric("sum", value) for name, value in zip(_METRICS, values, strict=True)}
