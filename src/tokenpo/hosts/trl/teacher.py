"""A trainer's teacher: a frozen model with the policy's inputs, scored as TRL scores its reference model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer
from trl.models import prepare_deepspeed, prepare_fsdp  # pyright: ignore
from trl.trainer.utils import add_fused_lm_head, create_model_from_path  # pyright: ignore

from ...base.errors import Unsupported
from ...core.head.projection import probe_head
from ...core.head.teacher import Teacher as TeacherHead
from ...core.objective import Objective
from ...records.trace import require_same_tokens
from .forward import base_of, place, predicting, texts


@dataclass(frozen=True)
class Teacher:
    """A model that accelerate has prepared; no gradient flows to it."""

    trainer: Any
    model: Any

    @staticmethod
    def of(trainer: Any, given: Any) -> "Teacher | None":
        """The trainer's teacher, from a directory, a hub id, or a model; call it after TRL has made the policy.

        Raises:
            TokenPOError: its tokens are not the policy's.
            Unsupported: the method compares whole distributions, and a head is not plain and whole.
        """
        if given is None:
            return None
        args, policy, objective = trainer.args, base_of(trainer), trainer.policy_objective
        if isinstance(given, str):
            defaults = {"trust_remote_code": args.trust_remote_code, "dtype": policy.dtype, "device_map": None}
            given = create_model_from_path(given, **(defaults | (args.model_init_kwargs or {})))
        if name := given.config._name_or_path:  # a model made in memory has no tokenizer
            require_same_tokens("teacher_model", name, AutoTokenizer.from_pretrained(name), trainer._tokenizer)
        if objective.teacher_beta is not None:
            _require_heads(trainer, objective, given)
        place(given)
        add_fused_lm_head(given.eval(), trainer.temperature, args.cast_lm_head_to_fp32, ("log_probs", "entropy"))
        if trainer.is_deepspeed_enabled:
            prepared = prepare_deepspeed(given, trainer.accelerator)
        elif trainer.is_fsdp_enabled:
            prepared = prepare_fsdp(given, trainer.accelerator)
        else:
            prepared = trainer.accelerator.prepare_model(given, evaluation_mode=True)
        return Teacher(trainer, prepared)

    @torch.no_grad()
    def logprob(self, inputs: Mapping[str, Any], rows: int) -> Tensor:
        """[M, T] log-probabilities of the completions, `rows` rows per pass."""
        return self.trainer.forward_passes.by_trl(self.model, inputs, rows)[0].logprob.float()

    @torch.no_grad()
    def head(self, inputs: Mapping[str, Any], mask: Tensor) -> TeacherHead:
        """The hidden states and the head that give its logits at the tokens in `mask` [M, T]."""
        base = self.trainer.accelerator.unwrap_model(self.model)
        with self.trainer.accelerator.autocast():
            hidden = predicting(base, mask.shape[1], **texts(inputs))
        head = base.get_output_embeddings()
        return TeacherHead(hidden[mask], head.weight, head.bias)


def _require_heads(trainer: Any, objective: Objective, teacher: Any) -> None:
    instead = "take opd, or tokenpo.with_teacher in the form 'credit' or 'penalty', which read sampled tokens alone"
    if objective.scope == "batch" or not (trainer.forward_passes.in_head and probe_head(teacher)):
        raise Unsupported(
            f"{objective.name} needs teacher_divergence, which TRL takes in whole, plain heads of both models, "
            f"and not for a method that looks at a whole optimiser step: set fused_objective=True, or {instead}"
        )
