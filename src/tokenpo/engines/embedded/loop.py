"""Runs of the embedded engine: the model in this process."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import torch

from ...core.learner import Learner, Step
from ...core.types import Policy, Rollouts
from ...models import LanguageModel
from ...recipe.config import Config
from ...recipe.hosts import EMBEDDED, Host
from ...recipe.plan import Plan
from ...runs import checkpoint, loop
from ...runs.checkpoint import Progress
from ...runs.evaluation import Evaluation, evaluate
from ...runs.loop import SHORTER, Outcome
from ...runs.records import Tracer
from ...runs.rollouts.draw import Draw
from ...runs.rollouts.experience import Experience
from ...runs.view import View
from .engine import Engine, build_engine, with_optional_inputs
from .rollout import collect
from .updates import Trainer, improve


def train(config: Config, view: View) -> Outcome:
    """A fresh run, to its end or to an interrupt (`runs.loop.train`)."""
    return loop.train(Local, config, view)


def resume(directory: Path, view: View, wanted: Config | None = None, *, accept: bool = False) -> Outcome:
    """Goes on from the newest good checkpoint, bit for bit on a CPU (`runs.loop.resume`)."""
    return loop.resume(Local, directory, view, wanted, accept=accept)


class Local:
    """The backend in this process."""

    host: ClassVar[Host] = EMBEDDED
    smaller: ClassVar[str] = f"train.micro_rows, train.micro_tokens or {SHORTER}"

    def __init__(self, engine: Engine) -> None:
        self.engine, self.config = engine, engine.config
        self.trainer = Trainer.of(engine.config, engine.lm, engine.objective)

    @classmethod
    def open(cls, plan: Plan) -> Local:
        return cls(build_engine(plan))

    @property
    def learner(self) -> Learner:
        return self.trainer.learner

    @property
    def vocabulary(self) -> LanguageModel:
        return self.engine.lm

    def start(self, saved: Path | None, progress: Progress) -> None:
        if saved is not None:
            checkpoint.restore(saved, self.engine.lm.model, self.trainer.optimizer)

    def about(self) -> str:
        return self.engine.about()

    def collect(self, cursor: int) -> Experience:
        plan, rule = self.engine.objective.continuations, self.trainer.rule()
        baseline = "baseline" in self.engine.objective.needs
        return collect(self.config, self.engine.lm, self.engine.task, cursor, rule, plan, baseline=baseline)

    def complete(self, rollouts: Rollouts, kept: Draw) -> Rollouts:
        return with_optional_inputs(self.engine, self.trainer.forward, rollouts, kept)

    def improve(self, step: Step, kept: Draw, tracer: Tracer) -> None:
        improve(self.trainer, step, kept.prompts, tracer)

    @torch.no_grad()
    def judge(self, rollouts: Rollouts, kept: Draw) -> Policy:
        return self.trainer.forward.policy(rollouts, kept.prompts)

    def evaluate(self) -> Evaluation:
        return evaluate(self.config, self.engine.lm, self.engine.task)

    def save(self, directory: Path, progress: Progress) -> None:
        if progress.step == 0:  # the weights are the model's own
            checkpoint.begin(directory, progress)
        else:
            checkpoint.save(directory, self.engine.lm.model, self.trainer.optimizer, progress)

    def finish(self, directory: Path, step: int) -> list[str]:
        checkpoint.save_model(directory, self.engine.lm, step)
        return checkpoint.final_model(directory)

    is_finished = staticmethod(checkpoint.has_model)

    def close(self) -> None:
        self.engine.task.close()
