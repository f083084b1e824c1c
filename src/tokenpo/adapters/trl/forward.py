"""What a model says of the tokens of a micro-batch of TRL's.

TRL's own pass gives log-probability and entropy at one temperature and never holds all logits. Tokens that were sampled
at temperatures of their own, and the entropy drift, take a pass with logits.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import Unsupported
from ...objective import Objective
from ...ops.token_stats import stats_from_logits
from ...types import Policy

_GIVEN = ("self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy")


@dataclass(frozen=True)
class Forward:
    """Forward passes of one trainer.

    Args:
        trainer: TRL's.
        single: every token was sampled at the trainer's temperature.
        drift: also `Policy.entropy_drift`.
        entropy_grad: keep the graph of the entropy.
    """

    trainer: Any
    single: bool
    drift: bool
    entropy_grad: bool

    @staticmethod
    def of(trainer: Any, objective: Objective) -> Forward:
        needs = objective.needs
        return Forward(trainer, objective.temperature is None, "entropy_drift" in needs, objective.entropy_gradient)

    def policy(self, model: Any, inputs: Mapping[str, Any], temperature: Tensor, rows: int | None = None) -> Policy:
        """Log-probability and entropy [M, T] of the completions, with graph unless gradients are off.

        Args:
            inputs: prompt_ids, prompt_mask, completion_ids, completion_mask, and what a multimodal model takes.
            temperature: [M, T] > 0, at which each token was sampled.
            rows: rows of one pass; None takes all at once.
        """
        if self.single and not self.drift:
            return self.fused(model, inputs, rows)
        if "pixel_values" in inputs:
            raise Unsupported(
                f"{self.trainer.policy_objective.name} takes a pass with logits (for entropy_drift, or temperatures "
                "from token to token), which the TRL engine has for text only: choose another method for this model"
            )
        return self._with_logits(model, inputs, temperature, rows or len(temperature))

    def fused(self, model: Any, inputs: Mapping[str, Any], rows: int | None) -> Policy:
        """The same at the trainer's temperature, by TRL's own pass."""
        score = self.trainer._get_per_token_logps_and_entropies
        extra = [name for name in inspect.signature(score).parameters if name not in _GIVEN]
        logprob, entropy = score(
            model=model,
            **_texts(inputs),
            logits_to_keep=inputs["completion_ids"].size(1),
            batch_size=rows,
            compute_entropy=True,
            **{name: inputs[name] for name in extra if name in inputs},
        )[:2]
        return Policy(logprob, entropy if self.entropy_grad else entropy.detach())

    def _with_logits(self, model: Any, inputs: Mapping[str, Any], temperature: Tensor, rows: int) -> Policy:
        ids, attention = _texts(inputs).values()
        length = inputs["completion_ids"].size(1)
        pieces = []
        for at in (slice(start, start + rows) for start in range(0, len(ids), rows)):
            with self.trainer.accelerator.autocast():
                out = model(input_ids=ids[at], attention_mask=attention[at], **self._kept(length + 1))
            logits = out.logits[:, -length - 1 : -1]
            stats = stats_from_logits(
                logits.flatten(0, 1),
                inputs["completion_ids"][at].flatten(),
                temperature[at].flatten(),
                drift=self.drift,
                entropy_grad=self.entropy_grad,
            )
            pieces.append([None if x is None else x.view(-1, length) for x in stats])
        logprob, entropy, drift = (None if c[0] is None else torch.cat(c) for c in zip(*pieces, strict=True))
        return Policy(logprob, entropy, drift)  # pyright: ignore[reportArgumentType]

    def _kept(self, positions: int) -> dict[str, int]:
        """Asks the model for the logits of the last positions only, where it can be asked."""
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        known = "logits_to_keep" in inspect.signature(base.forward).parameters
        return {"logits_to_keep": positions} if known else {}


def _texts(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    return {
        "input_ids": torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
        "attention_mask": torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
    }
