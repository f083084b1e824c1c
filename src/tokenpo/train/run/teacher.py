"""The teacher of a run: another model, or the policy itself with a hint in its prompt."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from ...base.errors import TokenPOError, Unsupported
from ...core.head.teacher import Teacher as TeacherHead
from ...core.types import Rollouts
from ...records.trace import require_same_tokens
from ..models import LanguageModel
from ..models.sampler import require_length
from ..models.score import has_plain_head
from ..recipe.plan import Plan
from .rollout import Draw, Prompt, encode_prompts
from .updates import Forward, Taught


@dataclass(frozen=True)
class Teacher:
    """A model that scores the policy's responses."""

    lm: LanguageModel
    hint: str  # text before its prompt, "" for none; "{answer}" stands for the reference answer

    @staticmethod
    def of(plan: Plan, policy: LanguageModel) -> Teacher | None:
        """The recipe's teacher; None without one.

        Raises:
            TokenPOError: it has neither path nor hint, or its tokenizer is not the policy's.
            Unsupported: the method compares whole distributions, and it reads a whole step or a head is not plain.
        """
        section = plan.config.teacher
        if section is None:
            return None
        if section.path is None and section.hint is None:
            raise TokenPOError(
                "the section teacher has neither path nor hint, and the policy itself teaches nothing: set one of them"
            )
        lm = policy if plan.teacher is None else plan.load_model(plan.teacher)
        if lm is not policy:
            require_same_tokens("teacher.path", plan.teacher, lm.tokenizer, policy.tokenizer)
        if plan.objective.teacher_beta is not None and not (has_plain_head(lm) and has_plain_head(policy)):
            raise Unsupported(
                f"{plan.objective.name} needs teacher_divergence, which the embedded engine takes from final hidden "
                "states, but the logits of the policy or of the teacher are not just head(hidden): take opd, which "
                "reads sampled tokens alone, or leave the head out of the LoRA targets"
            )
        if plan.objective.teacher_beta is not None and plan.objective.scope == "batch":
            raise Unsupported(
                f"{plan.objective.name} looks at the whole optimiser step, for which the embedded engine has no "
                "teacher_divergence: take another method, or teacher.form = 'credit' or 'penalty'"
            )
        return Teacher(lm, section.hint or "")

    def prompts(self, kept: Draw, longest: int) -> list[list[int]]:
        """Token ids of each prompt with its hint, short enough for a response of `longest` tokens.

        Raises:
            TokenPOError: the hint names an answer and the problem has none, or prompt and response are too long.
        """

        def hinted(place: int) -> Prompt:
            reference, prompt = kept.problems[place].reference, kept.question(place)
            if "{answer}" in self.hint and reference is None:
                raise TokenPOError(
                    "teacher.hint names {answer}, and the problem has no reference answer: give the data one, or leave "
                    "{answer} out"
                )
            hint = self.hint.replace("{answer}", reference or "")
            if not hint:
                return prompt
            return hint + prompt if isinstance(prompt, str) else [{"role": "system", "content": hint}, *prompt]

        def check(ids: list[int]) -> None:
            require_length(self.lm, len(ids), longest)

        return encode_prompts(self.lm, kept.problems, kept.start, hinted, check, "the teacher's prompt of {}")

    def logprob(self, forward: Forward, rollouts: Rollouts, kept: Draw) -> Tensor:
        """[N, T] log-probability of the policy's tokens in the teacher's context, at the sampling temperature."""
        return self._forward(forward).policy(rollouts, self._prompts(rollouts, kept)).logprob.float()

    @torch.no_grad()
    def teach(self, forward: Forward, rollouts: Rollouts, kept: Draw) -> Taught:
        """The teacher on any rows: runs it once over the whole rollout batch and keeps the hidden states."""
        hidden: dict[int, Tensor] = {}
        for seen in self._forward(forward).passes(rollouts, self._prompts(rollouts, kept)):
            rows, sizes = seen.row.unique_consecutive(return_counts=True)
            hidden |= zip(rows.tolist(), seen.out.split(sizes.tolist()), strict=True)
        head = self.lm.model.get_output_embeddings()
        return lambda rows: TeacherHead(torch.cat([hidden[row] for row in rows.tolist()]), head.weight, head.bias)

    def _forward(self, forward: Forward) -> Forward:
        return dataclasses.replace(forward, lm=self.lm, drift=False)

    def _prompts(self, rollouts: Rollouts, kept: Draw) -> list[list[int]]:
        return self.prompts(kept, int(rollouts.mask.sum(1).max()))
