"""Phase two in verl's workers: the loss of one micro-batch, with the denominators of the optimiser step.

verl averages gradients over data-parallel ranks, so the loss is multiplied by `dp_size`, as in verl's own losses.
"""

# pyright: reportMissingImports=false
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils.metric import Metric
from verl.workers.utils.padding import no_padding_2_padding

from ...core.objective import Objective
from ...core.types import Batch, Credit, Loss, Policy, Rollouts, Totals
from .layout import GROUP, REWARD, SEQUENCES, TOKENS, TRAJECTORY, padded, signal_fields, token_facts

# Mean |log-ratio|. Its presence in verl's metrics shows that this loss was called. Because of the "min" in its name
# verl's reduce_metrics keeps the smallest over optimiser steps: the first one's, where the policy is still the sampler.
DRIFT = "tokenpo_drift_min"
_METRICS = ("pg_loss", "pg_clipfrac", "ppo_kl", "tokenpo_weight", "tokenpo_penalty", DRIFT)


@dataclass(frozen=True)
class WorkerLoss:
    """The loss of one pass of an objective on rows in verl's layout; the driver sends it to every worker."""

    objective: Objective  # with all passes, because names of signals depend on all of them
    length: float  # of the longest response allowed
    temperature: float = 1.0  # of sampling
    part: int = 0  # number of the pass

    def __call__(
        self, model_output: dict[str, Any], data: TensorDict, dp_group: Any = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """verl's (loss, metrics) of one micro-batch, whose `data` has `layout.credit_fields`."""
        mask = padded(data["response_mask"]).bool()
        logprob = no_padding_2_padding(model_output["log_probs"], data)
        ranks = data["dp_size"]
        live = mask.any(1)
        if not live.any():  # padding rows alone: a zero with its graph, so that every rank runs backward
            return torch.where(mask, logprob, 0.0).sum(), {name: Metric("sum", 0.0) for name in _METRICS}
        objective = self.objective.split()[self.part]
        batch = self._batch(objective, model_output, data, logprob).rows(live)
        totals = Totals(float(data["batch_num_tokens"]), float(data[SEQUENCES][live][0]), float(self.length))
        loss = objective.loss(batch, totals, ("clipped", "weight", "penalty"))
        return loss.value * ranks, _metrics(batch, loss, totals, ranks)

    def _batch(self, objective: Objective, model_output: dict[str, Any], data: TensorDict, logprob: Tensor) -> Batch:
        reads = "entropy" in objective.needs  # `configure` has switched it on
        entropy = no_padding_2_padding(model_output["entropy"], data) if reads else None
        facts: dict[str, Any] = token_facts(data, objective.needs, self.temperature)
        trajectory, length = (data.get(name, None) for name in (TRAJECTORY, TOKENS))
        rollouts = Rollouts(reward=data[REWARD], group=data[GROUP], trajectory=trajectory, **facts)
        named = signal_fields(self.objective).items()
        signals = {part: padded(data[field]) for part, field in named if field in data}
        return Batch(rollouts, Credit(padded(data["advantages"]), signals, length), Policy(logprob, entropy))


@torch.no_grad()
def _metrics(batch: Batch, loss: Loss, totals: Totals, ranks: int) -> dict[str, Any]:
    """Shares of the optimiser step's metrics, which verl adds up over micro-batches and averages over ranks."""
    terms, log_ratio = loss.terms, batch.policy.logprob - batch.rollouts.old_logprob
    by_token = (terms["clipped"], -log_ratio, terms["weight"], terms["penalty"], log_ratio.abs())
    means = (float(x[batch.mask].double().sum()) / totals.tokens for x in by_token)
    values = zip(_METRICS, (float(loss.value), *means), strict=True)
    return {name: Metric("sum", value * ranks) for name, value in values}
