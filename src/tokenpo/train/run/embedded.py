"""The models and the task of a run: they sample, score, update and evaluate for `Run.step`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...base.errors import TokenPOError, Unsupported, present, refuse
from ...core.head.teacher import Teacher as TeacherHead
from ...core.learner import Step
from ...core.parts import Continuations
from ...core.seeds import keyed_seed
from ...core.types import TAUGHT, Policy, Rollouts
from ...methods.contrib.credit import Drafts
from ...records import Tracer
from ...records.trace import require_same_tokens
from ..models import LanguageModel, Sampling, require_room
from ..models.half import refresh
from ..models.sampler import require_length
from ..models.score import has_plain_head
from ..recipe.objective import require_here
from ..recipe.plan import Plan
from ..tasks import Task, ToolTask
from . import checkpoint
from .checkpoint import Progress
from .evaluation import Evaluation, evaluate
from .rollout import Draw, Experience, Prompt, credit_inputs, draw, encode_prompts, gather, respond
from .supplied import Sampler
from .trackers import require_trackers
from .updates import Forward, Taught, Trainer, improve


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
            raise TokenPOError("the policy itself teaches nothing: give the section teacher a path or a hint")
        lm = policy if plan.teacher is None else plan.load_model(plan.teacher)
        if lm is not policy:
            require_same_tokens("teacher.path", plan.teacher, lm.tokenizer, policy.tokenizer)
        if plan.objective.teacher_beta is not None:
            name, plain = plan.objective.name, has_plain_head(lm) and has_plain_head(policy)
            faults = [
                not plain
                and f"{name} needs teacher_divergence, but logits of policy or teacher are not just head(hidden): take "
                "opd, which reads sampled tokens alone, or leave the head out of the LoRA targets",
                plan.objective.scope == "batch"
                and f"{name} looks at the whole optimiser step, for which the embedded engine has no "
                "teacher_divergence: take another method, or teacher.form = 'credit'",
            ]
            refuse(faults)
        return Teacher(lm, section.hint or "")

    def prompts(self, kept: Draw, longest: int) -> list[list[int]]:
        """Token ids of each prompt with its hint, short enough for a response of `longest` tokens.

        Raises:
            TokenPOError: the hint names an answer and the problem has none, or prompt and response are too long.
        """

        def hinted(place: int) -> Prompt:
            reference, prompt = kept.problems[place].reference, kept.question(place)
            if "{answer}" in self.hint and reference is None:
                raise TokenPOError("teacher.hint names {answer}, which the problem lacks: leave {answer} out")
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


class Local:
    """Model, reference, teacher and task; while a run trains, only the weights of `lm` and of a critic change."""

    def __init__(
        self, plan: Plan, lm: LanguageModel, task: Task, reference: LanguageModel | None, teacher: Teacher | None
    ) -> None:
        self.config, self.objective, self.task = plan.config, plan.objective, task
        self.lm, self.reference, self.teacher = lm, reference, teacher
        self.trainer = Trainer.of(plan.config, lm, plan.objective)
        self.learner = self.trainer.learner

    @classmethod
    def open(cls, plan: Plan) -> Local:
        require_trackers(plan.config.output.track)
        require_here(plan.objective, plan.config)
        if plan.config.threads is not None:
            torch.set_num_threads(plan.config.threads)
        task = plan.make_task()
        try:
            lm, needs = plan.load_model(), plan.objective.needs
            if any(isinstance(x, Continuations) for x in plan.objective.supplied) and isinstance(task, ToolTask):
                raise Unsupported(
                    f"{plan.objective.name} samples continuations, which call no tool, and the task "
                    f"{plan.config.task.name} has one: take another task, or another method"
                )
            for name in sorted(needs & {"influence", "value"}) if not has_plain_head(lm) else ():
                raise Unsupported(
                    f"{plan.objective.name} needs {name}, which the embedded engine defines for a linear head, but the "
                    f"logits of {type(lm.model).__name__} are not just head(hidden): take another method, or leave the "
                    "head out of the LoRA targets"
                )
            # Under LoRA the reference is the same model with its adapters switched off.
            reference = plan.load_model(plan.model) if "ref_logprob" in needs and lm.adapter is None else None
            return cls(plan, lm, task, reference, Teacher.of(plan, lm) if needs & TAUGHT else None)
        except BaseException:
            task.close()
            raise

    def start(self, saved: Path | None, progress: Progress) -> None:
        if saved is not None:
            checkpoint.restore(saved, *self.trainer.trained)
            refresh(self.lm)

    def about(self) -> str:
        lm = self.lm
        sizes = [(x.numel(), x.requires_grad) for x in lm.model.parameters()]
        size, trained = sum(n for n, _ in sizes), sum(n for n, grad in sizes if grad)
        part = "" if trained == size else f", {trained / 1e6:.2f} M of them trained"
        half, device = "", str(lm.device)
        if self.config.train.autocast and lm.trained.model.dtype == torch.float32:
            half = " without train.autocast, as this processor has no bf16," if lm.master is None else ", bf16 products"
        return f": {size / 1e6:.2f} M parameters{part}, {self.config.model.dtype}{half} on {device}"

    def collect(self, cursor: int) -> Experience:
        """One rollout batch; the objective's `Supplied` parts compute their inputs, and `Drafts` are sampled first."""
        lm, task, options, objective = self.lm, self.task, self.config.rollout, self.objective
        plan = next((part for part in objective.supplied if isinstance(part, Drafts)), None)
        seed = keyed_seed(self.config.seed, "sampling")
        sampling = Sampling(options.max_new_tokens, options.temperature, seed, options.cut)
        rule = self.trainer.rule()
        tokens = 0  # sampled for the credit only

        def fresh(start: int, count: int) -> Draw:
            nonlocal tokens
            if plan is None:
                return draw(lm, task, "train", start, count, options.group_size, sampling, rule=rule)
            early = dataclasses.replace(sampling, seed=keyed_seed(self.config.seed, "drafts"))
            drafts = draw(lm, task, "train", start, count, plan.count, early, rule=rule)
            tokens += int(drafts.mask.sum())
            questions, prompts = _second_prompts(lm, drafts, plan, sampling)
            final = respond(lm, task, start, drafts.problems, prompts, options.group_size, sampling, rule=rule)
            return dataclasses.replace(final, asked=questions)

        batch = gather(fresh, cursor, options.prompts, options.max_extra_batches, choose=options.dynamic_sampling)
        rollouts, kept = batch.rollouts, batch.kept
        if rollouts is None or kept is None:
            return dataclasses.replace(batch, continued=tokens)
        # The cursor is different in every batch, so it keys the random numbers.
        again = dataclasses.replace(sampling, seed=keyed_seed(self.config.seed, "continuations", cursor))
        most = self.config.train.micro_tokens
        sampler = Sampler(lm, kept.prompts, most, task=task, kept=kept, again=again, rule=rule)
        rollouts = sampler.supply(objective, rollouts)
        return dataclasses.replace(batch, rollouts=rollouts, continued=tokens + sampler.continued_tokens)

    @torch.no_grad()
    def complete(self, rollouts: Rollouts, kept: Draw) -> Rollouts:
        """The rollouts with the task's turns and rewards, and with the needed inputs that take a forward pass."""
        needs, forward = self.objective.needs, self.trainer.forward
        fields: dict[str, Tensor | None] = {**credit_inputs(kept, rollouts, needs)}
        if self.config.rollout.rescore:
            policy = forward.policy(rollouts, kept.prompts)
            fields |= {"old_logprob": policy.logprob.float(), "old_entropy": policy.entropy}
        if "ref_logprob" in needs:
            lm = self.reference or self.lm
            base = self.lm.adapter.disable_adapter() if self.reference is None else contextlib.nullcontext()
            with base:
                policy = dataclasses.replace(forward, lm=lm, drift=False).policy(rollouts, kept.prompts)
            fields["ref_logprob"] = policy.logprob.float()
        if "teacher_logprob" in needs:
            teacher = present(self.teacher, "the teacher of the recipe")
            fields["teacher_logprob"] = teacher.logprob(forward, rollouts, kept)
        if "value" in needs and forward.critic is not None:
            fields["value"] = forward.value(forward.critic, rollouts, kept.prompts)
        return dataclasses.replace(rollouts, **fields) if fields else rollouts

    def improve(self, step: Step, kept: Draw, tracer: Tracer) -> None:
        improve(self.trainer, step, kept.prompts, tracer, taught=self.teach(step.rollouts, kept))

    def teach(self, rollouts: Rollouts, kept: Draw) -> Taught | None:
        """The teacher's whole distributions; None unless the objective reads them."""
        if self.teacher is None or self.objective.teacher_beta is None:
            return None
        return self.teacher.teach(self.trainer.forward, rollouts, kept)

    @torch.no_grad()
    def judge(self, rollouts: Rollouts, kept: Draw) -> Policy:
        return self.trainer.forward.policy(rollouts, kept.prompts)

    def evaluate(self) -> Evaluation:
        return evaluate(self.config, self.task, functools.partial(draw, self.lm, self.task, "test"))

    def save(self, directory: Path, progress: Progress) -> None:
        # Before the first update the weights are the model's own.
        checkpoint.save(directory, progress, *(self.trainer.trained if progress.step else ()))

    def finish(self, directory: Path, step: int) -> list[str]:
        checkpoint.save_model(directory, self.lm, step)
        return checkpoint.final_model(directory)

    def close(self) -> None:
        self.task.close()


def _second_prompts(lm: LanguageModel, drafts: Draw, plan: Drafts, sampling: Sampling) -> tuple[list, list[list[int]]]:
    """The prompt of each problem with its best draft, as text or messages and as token ids."""
    best = drafts.reward().view(-1, plan.count).argmax(1).tolist()  # the first of the largest
    texts = [drafts.completions[place * plan.count + chosen] for place, chosen in enumerate(best)]
    questions = [plan.prompt(problem.prompt, text) for problem, text in zip(drafts.problems, texts, strict=True)]
    return questions, encode_prompts(
        lm, drafts.problems, drafts.start, questions.__getitem__, lambda ids: require_room(lm, ids, sampling),
        "{}, with its draft",
    )  # fmt: skip
