"""The training loop: collect and verify responses, compute credit, update, and record everything.

A backend samples and updates the model, in this process or on a server; everything else is here.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, Self, cast

from ...base.errors import NotFinite, TokenPOError
from ...base.interrupt import Interrupt
from ...base.memory import enough_memory, is_shortage
from ...core.learner import Learner, Step
from ...core.types import TAUGHT, Policy, Rollouts
from ...records import step_file, write_lines
from ...records.watch import Watch
from ..models.vocabulary import Tokenized
from ..recipe.config import Config
from ..recipe.engines import EMBEDDED, again
from ..recipe.objective import warnings
from ..recipe.plan import Plan
from . import checkpoint
from .checkpoint import LearnerState, Progress
from .directory import (
    LOGS,
    OpenRun,
    cut_back,
    describe,
    edited_recipe,
    evaluations,
    held,
    new_directory,
    note_changes,
    open_checkpoint,
    require_engine,
    resumed,
)
from .draw import Draw
from .evaluation import Evaluation
from .experience import Experience
from .records import Clock, Tracer, rollout_metrics, rollout_records, sample_records, step_metrics, trace_records
from .view import View, about

SHORTER = "rollout.max_new_tokens"
FEWER = f"rollout.prompts, rollout.group_size or {SHORTER}"
REMEDY = (
    'the run can go on from its last checkpoint: find what made it, or set train.nonfinite = "skip" to leave such '
    "updates out and count them"
)


class Backend(Protocol):
    """Samples and updates the model of a run; driven by `train.run.loop`.

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
    def vocabulary(self) -> Tokenized: ...

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


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Args:
        steps: rollout batches trained on so far.
        finished: false if it was interrupted; `resume` continues it.
        evaluations: the lines of metrics with an evaluation, in order.
        left: lines that name the place of the final model.
    """

    directory: Path
    steps: int
    finished: bool
    evaluations: list[dict[str, float]]
    left: list[str]


def train(backend: type[Backend], config: Config, view: View) -> Outcome:
    """Trains a fresh run to its end, or to an interrupt; TokenPOError if something that it needs is not available."""
    plan = Plan(config)
    with closing(backend.open(plan)) as model:
        progress = Progress(sizes=dict.fromkeys(LOGS, 0))
        model.start(None, progress)
        directory = new_directory(config)
        with held(directory):
            loop = None
            try:
                describe(directory, plan)
                model.save(directory, progress)
                loop = Loop(model, plan, OpenRun(directory, config, 0, view.say), view, progress)
                return loop.run([])
            except TokenPOError as error:
                # Nothing was trained, so the directory goes and the same command works again. NotFinite and lack of
                # memory keep it: their messages say to resume.
                if not (loop and loop.number) and not isinstance(error, NotFinite) and not is_shortage(error.__cause__):
                    shutil.rmtree(directory)
                raise


def resume(
    backend: type[Backend], directory: Path, view: View, wanted: Config | None = None, *, accept: bool | None = False
) -> Outcome:
    """Resumes from the newest good checkpoint as if the run had never stopped: bit for bit on a CPU.

    Args:
        wanted: the config; it may differ from the run's in train.steps and output only. None: the run's own.
        accept: other settings may differ too, and changes.jsonl records them. None: the engine does not offer this.

    Raises:
        TokenPOError: no run, a run of another engine, another config, no good checkpoint, or the run is at its end.
    """
    require_engine(directory, backend.name)
    plan, changed = resumed(directory, wanted, accept=accept)
    config = plan.config
    with closing(backend.open(plan)) as model, held(directory):
        saved, progress, notes = open_checkpoint(directory)
        if progress.step >= config.train.steps:
            if backend.is_finished(directory, progress.step):
                raise TokenPOError(
                    f"{directory} has made all of its {progress.step} steps: to go on, resume it with "
                    f"--set train.steps={2 * progress.step}"
                )
            notes.append("all steps are made, but no model/ is there that says it is theirs, so it is written anew")
        model.start(saved, progress)
        if state := dict(progress.learner):
            if changed and state.get("objective") != str(plan.objective):
                fresh = model.learner.state_dict()  # another objective has other memory
                state |= {name: fresh[name] for name in ("objective", "memory")}
            model.learner.load_state_dict(state)
        notes += [*cut_back(directory, progress), *edited_recipe(directory)]
        if changed:
            notes.append(f"from step {progress.step + 1} on with other settings: {'; '.join(changed)}")
            note_changes(directory, progress.step, changed)
        describe(directory, plan)
        records = OpenRun(directory, config, progress.step, view.say)
        return Loop(model, plan, records, view, progress).run(notes)


class Loop:
    """Runs the steps of a run."""

    def __init__(self, model: Backend, plan: Plan, records: OpenRun, view: View, progress: Progress) -> None:
        self.model, self.plan, self.records, self.view = model, plan, records, view
        self.config, self.learner = plan.config, model.learner
        self.number, self.cursor, self.sizes = progress.step, progress.cursor, progress.sizes
        self.interrupt = Interrupt()
        self.watch = Watch(progress.step, rewarded=plan.objective.needs.isdisjoint(TAUGHT))

    def run(self, notes: list[str]) -> Outcome:
        config, directory, objective = self.config, self.records.path, self.plan.objective
        notes = [*notes, *warnings(objective, config, self.model.name)]
        form = config.teacher.form if config.teacher and config.teacher.coef is None else "credit"
        if form != "credit" and objective.needs & TAUGHT:
            notes.append(
                f"teacher.form is not read: {objective.name} has a form of its own, and there is no teacher.coef"
            )
        self.view.start(about(config, self.model.about(), str(objective)), directory, self.number, notes)
        try:
            with self.interrupt:
                # Before the first step, unless the checkpoint shows that this line is already logged.
                if not self.sizes["metrics.jsonl"] and self.number == 0 and config.evaluate.problems:
                    self.view.say(f"evaluating on at most {config.evaluate.problems} held-out problems")
                    before = self.evaluate()
                    self.records.log({"step": 0, **before.metrics()})
                    self.view.say(f"before: {before}")
                while self.number < config.train.steps and not self.interrupt.asked:
                    self.step()
                self.save()
            finished = self.number >= config.train.steps
            left = self.model.finish(directory, self.number) if finished else []
            return Outcome(directory, self.number, finished, evaluations(directory), left)
        finally:
            self.view.stop()
            self.warn(self.watch.said)  # again at the end, where a user looks
            self.records.close()

    def warn(self, texts: Sequence[str]) -> None:
        for text in texts:
            self.view.say(f"warning: {text}")

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
        for record in sample_records(number, experience.drawn[0], self.config.output.samples):
            self.records.samples.write(record)
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
        state, records = cast(LearnerState, self.learner.state_dict()), self.records
        progress = Progress(self.number, self.cursor, state, records.sizes(), self.plan.settings)
        self.model.save(records.path, progress)
        checkpoint.prune(records.path, self.config.output.keep, self.number)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
