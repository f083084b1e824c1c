"""One training step: sample and score responses, compute credit, update the model, record everything.

Read `Run.step` first. A backend samples and updates: `embedded` in this process, `tinker` on a server. `rollout`
samples and scores, `updates` trains, `records` writes lines. The loop over steps is `loop`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar, Protocol, Self

from ...base.errors import NotFinite, enough_memory
from ...base.terminal import Interrupt
from ...core.learner import Learner, Step
from ...core.types import TAUGHT, Policy, Rollouts
from ...records import step_file, write_lines
from ...records.log import Watch
from ..models import Vocabulary
from ..recipe.engines import EMBEDDED, again
from ..recipe.plan import Plan
from . import checkpoint
from .checkpoint import Progress
from .directory import OpenRun
from .evaluation import Evaluation
from .records import (
    PAID,
    Clock,
    Tracer,
    paid_lines,
    rollout_metrics,
    rollout_records,
    sample_records,
    step_metrics,
    trace_records,
)  # fmt: skip
from .rollout import Draw, Experience
from .view import View

SHORTER = "rollout.max_new_tokens"
FEWER = f"rollout.prompts, rollout.group_size or {SHORTER}"
REMEDY = (
    'the run can go on from its last checkpoint: find what made it, or set train.nonfinite = "skip" to leave such '
    "updates out and count them"
)


class Backend(Protocol):
    """Samples and updates the model of a run; driven by `Run`.

    Attributes:
        name: of the engine, "embedded" or "tinker".
        smaller: the settings to lower if an update does not fit into memory.
    """

    name: ClassVar[str]
    smaller: ClassVar[str]

    @classmethod
    def open(cls, plan: Plan) -> Self:
        """Loads everything that the run needs, cheapest first; TokenPOError if something is not available."""
        ...

    @property
    def learner(self) -> Learner: ...

    @property
    def vocabulary(self) -> Vocabulary: ...

    def start(self, saved: Path | None, progress: Progress) -> None:
        """Restores weights and optimiser from a checkpoint; None: the run is before its first update."""
        ...

    def about(self) -> str:
        """A few words about the model, printed after its name."""
        ...

    def collect(self, cursor: int) -> Experience:
        """Draws a rollout batch, from training problem `cursor` on."""
        ...

    def complete(self, rollouts: Rollouts, kept: Draw) -> Rollouts:
        """Adds every other input that the objective reads."""
        ...

    def improve(self, step: Step, kept: Draw, tracer: Tracer) -> None: ...

    def judge(self, rollouts: Rollouts, kept: Draw) -> Policy:
        """Scores a whole rollout batch under the current weights."""
        ...

    def evaluate(self) -> Evaluation: ...

    def save(self, directory: Path, progress: Progress) -> None: ...

    def finish(self, directory: Path, step: int) -> list[str]:
        """Saves the final model, that of this step's checkpoint; returns lines that name its place."""
        ...

    @staticmethod
    def is_finished(directory: Path, step: int, /) -> bool:
        """Whether the final model exists and is that of this step."""
        ...

    def close(self) -> None: ...


class Run:
    """A run between two steps: its model, its records, and how far it is."""

    def __init__(self, model: Backend, plan: Plan, records: OpenRun, view: View, progress: Progress) -> None:
        self.model, self.plan, self.records, self.view = model, plan, records, view
        self.config, self.learner = plan.config, model.learner
        self.number, self.cursor, self.sizes = progress.step, progress.cursor, progress.sizes
        self.interrupt = Interrupt()
        self.watch = Watch(progress.step, rewarded=plan.objective.needs.isdisjoint(TAUGHT))

    def step(self) -> None:
        """Samples a rollout batch, computes credit, makes the updates and records everything."""
        clock, number = Clock(), self.number + 1
        try:
            with clock.part("rollout"), self.room(f"while sampling for step {number}", FEWER):
                experience = self.model.collect(self.cursor)
        except NotFinite as error:
            self.skip(error, clock)
            return
        if self.interrupt.asked:
            return  # nothing has changed yet: a resumed run draws the same responses
        every = self.config.output.trace_every
        traced = every > 0 and (number == 1 or _due(number, every))
        tracer = Tracer(self.config.output.trace_rollouts if traced else 0)
        with clock.part("update"), self.room(f"in the update of step {number}", self.model.smaller):
            step = self.learn(experience, tracer)
        self.number, self.cursor = number, experience.cursor
        self.write(experience, step, tracer)
        self.end({**rollout_metrics(experience), **step_metrics(step)}, clock)

    def learn(self, experience: Experience, tracer: Tracer) -> Step | None:
        """Computes credit once, on whole groups, then updates; None if no group is left to learn from."""
        kept, rollouts, options = experience.kept, experience.rollouts, self.config.train
        everything = experience.everything() if self.learner.memory else None
        if kept is None or rollouts is None:
            if everything is not None:
                self.learner.remember(everything)
            return None
        try:
            rollouts = self.model.complete(rollouts, kept)
            rollouts = self.learner.dated(rollouts, options.epochs * options.minibatches)
            step = self.learner.begin(rollouts, drawn=everything)
            self.model.improve(step, kept, tracer)
        except NotFinite as error:
            raise NotFinite(f"step {self.number + 1}, {error}; {REMEDY}") from error
        for why in step.statistics.skipped:
            self.view.say(f"step {self.number + 1}: skipped {why}")
        return step

    def write(self, experience: Experience, step: Step | None, tracer: Tracer) -> None:
        """Writes responses, traces and, if due, the whole batch with the policy's scores after the updates."""
        number, words, kept = self.number, self.model.vocabulary, experience.kept
        if _due(number, self.config.output.rollouts_every) and kept is not None and step is not None:
            policy = self.model.judge(step.rollouts, kept)
            records = rollout_records(number, words, kept, step.rollouts, policy)
            write_lines(step_file(self.records.path, number), records)
        samples = list(sample_records(number, experience.drawn[0], self.config.output.samples))
        for record in samples:
            self.records.samples.write(record)
        for line in paid_lines(samples) if number <= PAID else ():
            self.view.say(line)
        for record in trace_records(number, words, kept, tracer) if kept is not None else ():
            self.records.trace.write(record)

    def skip(self, error: NotFinite, clock: Clock) -> None:
        """Skips a rollout batch whose sampling or rewards were not finite, unless the recipe says to stop."""
        self.number, train = self.number + 1, self.config.train
        if train.nonfinite == "stop":
            raise NotFinite(f"step {self.number}, rollouts: {error}; {REMEDY}") from error
        self.view.say(f"step {self.number}: skipped the rollout batch: {error}")
        self.cursor += self.config.rollout.prompts
        unknown = dict.fromkeys(("reward", "accuracy", "entropy", "length"), math.nan)
        self.end({**unknown, **step_metrics(None), "skipped_updates": train.epochs * train.minibatches}, clock)

    def end(self, metrics: dict[str, float], clock: Clock) -> None:
        """Ends a step, trained or skipped: evaluation if due, metrics, checkpoint if due."""
        config, number = self.config, self.number
        if config.evaluate.problems and (number == config.train.steps or _due(number, config.evaluate.every)):
            with clock.part("evaluation"):
                metrics |= self.evaluate().metrics()
        metrics = {"step": number, **metrics, "seconds_update": 0.0, **clock.summary()}
        self.records.log(metrics)
        self.view.step(metrics, config.train.steps)
        self.warn(self.watch(metrics))
        if _due(number, config.output.checkpoint_every) and number < config.train.steps:
            self.save()

    def evaluate(self) -> Evaluation:
        with self.room(f"in the evaluation after step {self.number}", f"evaluate.rows, evaluate.samples or {SHORTER}"):
            return self.model.evaluate()

    def room(self, doing: str, settings: str) -> AbstractContextManager[None]:
        """Context manager: if memory runs out, the error names the settings to lower."""
        engine = self.model.name
        go_on = f"go on from the last checkpoint with {again(self.records.path, engine)} --accept-changes --set ..."
        return enough_memory(doing, f"lower {settings}, and {go_on if engine == EMBEDDED else 'start a new run'}")

    def save(self) -> None:
        state, records = self.learner.state_dict(), self.records
        progress = Progress(self.number, self.cursor, state, records.sizes(), self.plan.settings)
        self.model.save(records.path, progress)
        checkpoint.prune(records.path, self.config.output.keep, self.number)

    def warn(self, texts: Sequence[str]) -> None:
        for text in texts:
            self.view.say(f"warning: {text}")


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
