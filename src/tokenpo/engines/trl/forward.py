"""What a model says of the tokens of a micro-batch of TRL's.

With a whole plain head the statistics are taken in it, at any temperature: the end of the model's forward pass is
replaced while it lasts, so whatever wraps the model (DDP, PEFT, autocast) sees the head used where it always is, and
what comes of it as the output of the pass. Otherwise TRL's own pass gives
log-probability and entropy at one temperature and never holds all logits; the entropy drift, and tokens at
temperatures of their own, take a pass with logits. A trainer scores old and new policy in one of these ways:
of the same weights they are to be the same numbers, as a distance such as |log ratio| has a kink there.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ...base.errors import Unsupported
from ...core.head.token_stats import TokenStats, stats_from_logits, token_stats
from ...core.objective import Objective
from ...core.types import Policy
from ...models.score import probe_head
from .contract import replaced

logger = logging.getLogger(__name__)
Found = TypeVar("Found")

_GIVEN = ("self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy")
_TEXT = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")


@dataclass(frozen=True)
class Forward:
    """Forward passes of one trainer.

    Args:
        trainer: TRL's.
        in_head: its model has a whole plain head, and the settings leave it to us.
        drift: also `Policy.entropy_drift`.
        entropy_grad: keep the graph of the entropy.
    """

    trainer: Any
    in_head: bool
    drift: bool
    entropy_grad: bool

    @staticmethod
    def of(trainer: Any, objective: Objective) -> Forward:
        """To be called before the model is wrapped."""
        in_head = wants_head(trainer) and has_whole_plain_head(trainer)
        if trainer.args.fused_objective and not in_head:
            logger.warning("fused_objective=True, but this model has no whole plain head: it takes TRL's own passes")
        return Forward(trainer, in_head, "entropy_drift" in objective.needs, objective.entropy_gradient)

    def policy(
        self, model: Any, inputs: Mapping[str, Any], rows: int | None = None, heat: Tensor | None = None
    ) -> Policy:
        """Log-probability and entropy [M, T] of the completions, with graph unless gradients are off.

        Args:
            inputs: prompt_ids, prompt_mask, completion_ids, completion_mask, and what a multimodal model takes.
            rows: rows of one pass; None takes all at once.
            heat: [M, T] > 0, a temperature for each token; None takes the trainer's.
        """
        if heat is None and not self.drift and not self.in_head:
            return self.fused(model, inputs, rows)
        if "pixel_values" in inputs:
            raise Unsupported(
                f"{self.trainer.policy_objective.name} takes a pass with logits (for entropy_drift, or to see that "
                "vLLM adapts the temperature), which the TRL engine has for text only: choose another method for this "
                "model"
            )
        count = len(inputs["completion_ids"])
        rows = rows or count
        given = torch.full_like(inputs["completion_ids"], self.trainer.temperature, dtype=torch.float32)
        heat = given if heat is None else heat
        scored = self._scored_in_head if self.in_head else self._scored_from_logits
        pieces = []
        for at in (slice(start, start + rows) for start in range(0, count, rows)):
            part = {name: inputs[name][at] for name in _TEXT}
            pieces.append(scored(model, part, heat[at]))
        logprob, entropy, drift = (None if c[0] is None else torch.cat(c) for c in zip(*pieces, strict=True))
        return Policy(logprob, entropy, drift)  # pyright: ignore[reportArgumentType]

    def fused(self, model: Any, inputs: Mapping[str, Any], rows: int | None) -> Policy:
        """The same at the trainer's temperature, by TRL's own pass."""
        score = self.trainer._get_per_token_logps_and_entropies
        extra = [name for name in inspect.signature(score).parameters if name not in _GIVEN]
        logprob, entropy = score(
            model=model,
            **texts(inputs),
            logits_to_keep=inputs["completion_ids"].size(1),
            batch_size=rows,
            compute_entropy=True,
            **{name: inputs[name] for name in extra if name in inputs},
        )[:2]
        return Policy(logprob, entropy if self.entropy_grad else entropy.detach())

    def _scored_in_head(self, model: Any, part: Mapping[str, Tensor], temperature: Tensor) -> list[Tensor | None]:
        """Statistics [M, T] of some rows, zero where the completion has ended."""
        mask, ids = part["completion_mask"].bool(), part["completion_ids"]

        def work(hidden: Tensor, head: nn.Linear) -> TokenStats:
            return token_stats(
                hidden[mask],
                head.weight,
                ids[mask],
                temperature[mask],
                bias=head.bias,
                drift=self.drift,
                entropy_grad=self.entropy_grad,
            )

        stats = head_work(self.trainer, model, part, work)
        return [None if x is None else x.new_zeros(mask.shape).masked_scatter(mask, x) for x in stats]

    def _scored_from_logits(self, model: Any, part: Mapping[str, Tensor], temperature: Tensor) -> list[Tensor | None]:
        """The same from all logits; what is behind the end of a completion is evaluated too."""
        length = part["completion_ids"].shape[1]
        with self.trainer.accelerator.autocast():
            out = model(**texts(part), **self._kept(length + 1))
        stats = stats_from_logits(
            out.logits[:, -length - 1 : -1].flatten(0, 1),
            part["completion_ids"].flatten(),
            temperature.flatten(),
            drift=self.drift,
            entropy_grad=self.entropy_grad,
        )
        return [None if x is None else x.view(-1, length) for x in stats]

    def _kept(self, positions: int) -> dict[str, int]:
        """Asks the model for the logits of the last positions only, where it can be asked."""
        known = "logits_to_keep" in inspect.signature(base_of(self.trainer).forward).parameters
        return {"logits_to_keep": positions} if known else {}


def wants_head(trainer: Any) -> bool:
    """Whether the settings ask for it: by default on a CPU, the one place where it was measured."""
    setting = trainer.args.fused_objective
    return trainer.accelerator.device.type == "cpu" if setting is None else setting


def has_whole_plain_head(trainer: Any) -> bool:
    """Whether logits are nothing but the product of hidden states and a head that lies whole in every process.

    Not so: a soft cap, a scale, an adapter or a cast on the head; FSDP, DeepSpeed and tensor parallelism, which split
    it; models that see more than text. Compiled models are left as they are, and so is float16, whose loss scale would
    come too late for gradients that are known with the loss. To be asked before the model is wrapped.
    """
    accelerator, model = trainer.accelerator, base_of(trainer)
    kind = accelerator.distributed_type.value
    if not (kind == "NO" or kind.startswith("MULTI_")) or trainer.args.torch_compile:
        return False
    if accelerator.mixed_precision == "fp16" or model.config.get_text_config() is not model.config:
        return False
    weight = getattr(model.get_output_embeddings(), "weight", None)
    ordinary = type(weight) is nn.Parameter and weight.dtype != torch.float16
    return ordinary and len({x.device for x in model.parameters()}) == 1 and probe_head(model)


def head_work(trainer: Any, model: Any, inputs: Mapping[str, Any], work: Callable[[Tensor, nn.Linear], Found]) -> Found:
    """What `work` makes of the hidden states [M, T, H] that predict the completions, and of the head.

    Args:
        model: the trainer's, as it is wrapped.
        inputs: prompt_ids, prompt_mask, completion_ids, completion_mask.
    """
    base, length = base_of(trainer), inputs["completion_ids"].shape[1]

    def forward(*args: Any, labels: Any = None, **named: Any) -> Found:
        hidden = base.base_model(*args, **{**named, "use_cache": False}).last_hidden_state
        # What predicts a token stands one place before it.
        return work(hidden[:, -length - 1 : -1], base.get_output_embeddings())

    with trainer.accelerator.autocast(), replaced(base, "forward", forward):
        return model(**texts(inputs))


def base_of(trainer: Any) -> Any:
    """The model of transformers inside of whatever wraps the trainer's."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def texts(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """Prompts and completions as a model takes them, [M, L] each."""
    return {
        "input_ids": torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1),
        "attention_mask": torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1),
    }
