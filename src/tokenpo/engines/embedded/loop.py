"""The training loop of the embedded engine: sample, verify, give credit, update; and write everything down."""

from __future__ import annotations

import math
import shutil
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ...base.errors import NotFinite, TokenPOError
from ...base.interrupt import Interrupt
from ...base.memory import enough_memory
from ...core.learner import Step
from ...recipe.config import Config
from ...recipe.hosts import EMBEDDED
from ...recipe.objective import warnings
from ...runs import checkpoint
from ...runs.checkpoint import LearnerState, Progress
from ...runs.directory import (
    LOGS,
    OpenRun,
    describe,
    evaluations,
    held,
    new_directory,
    note_changes,
    open_checkpoint,
    require_host,
    resumed_config,
)
from ...runs.evaluation import Evaluation, evaluate
from ...runs.records import Clock, rollout_metrics, rollout_records, sample_records, step_metrics, trace_records
from ...runs.rollouts import step_file, write_lines
from ...runs.rollouts.experience import Experience
from ...runs.tracer import Tracer
from ...runs.trackers import Trackers
from ...runs.view import View
from .engine import Engine, build_engine, judged, with_optional_inputs
from .rollout import collect
from .updates import Trainer, improve

_SHORTER = "rollout.max_new_tokens"
_FEWER = f"rollout.prompts, rollout.group_size or {_SHORTER}"
_SMALLER = f"train.micro_rows, train.micro_tokens or {_SHORTER}"
REMEDY = 'find what made it, or set train.nonfinite = "skip" to leave such updates out and count them'


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Args:
        directory: of the run.
        steps: rollout batches trained on so far.
        finished: false where it was interrupted; `resume` then goes on.
        evaluations: the lines of metrics with an evaluation, in order.
    """

    directory: Path
    steps: int
    finished: bool
    evaluations: list[dict[str, float]]


def train(config: Config, view: View) -> Outcome:
    """A fresh run, to its end or to an interrupt.

    Raises:
        TokenPOError: what the recipe asks for cannot be had; nothing was trained.
    """
    engine = build_engine(config)
    with closing(engine.task):
        trainer = Trainer.of(config, engine.lm, engine.objective)
        directory = new_directory(config)
        with held(directory):
            describe(directory, config, str(engine.objective))
            progress = Progress(learner=cast(LearnerState, trainer.learner.state_dict()), sizes=dict.fromkeys(LOGS, 0))
            checkpoint.begin(directory, progress)
            try:
                trackers = Trackers.open(directory, config, 0, view.say)
            except TokenPOError:
                # It was empty and nothing was trained: the next attempt can have it.
                shutil.rmtree(directory)
                raise
            return Training(engine, trainer, OpenRun(directory, config, trackers), view, progress).run([])


def resume(directory: Path, view: View, wanted: Config | None = None, *, accept: bool = False) -> Outcome:
    """Goes on from the newest good checkpoint as if the run had never stopped: bit for bit on a CPU.

    Args:
        wanted: None for the run's own config; another may differ in train.steps and in output only.
        accept: it may differ in everything; what differs is written to changes.jsonl.

    Raises:
        TokenPOError: no run there, one of another engine, another config, no good checkpoint, or the run is at its end.
    """
    require_host(directory, EMBEDDED)
    config, changed = resumed_config(directory, wanted, accept=accept)
    engine = build_engine(config)
    with closing(engine.task), held(directory):
        trainer = Trainer.of(config, engine.lm, engine.objective)
        progress, notes = open_checkpoint(directory, engine.lm.model, trainer.optimizer)
        if progress.step >= config.train.steps:
            if checkpoint.has_model(directory, progress.step):
                raise TokenPOError(
                    f"{directory} has made all of its {progress.step} steps: to go on, resume it with "
                    f"--set train.steps={2 * progress.step}"
                )
            notes.append("all steps are made, but no model/ is there that says it is theirs, so it is written anew")
        if changed:
            notes.append(f"from step {progress.step + 1} on with other settings: {'; '.join(changed)}")
            note_changes(directory, progress.step, changed)
        if any(line.startswith("method.") for line in changed):
            trainer.learner.updates = progress.learner.get("updates", 0)  # another objective remembers other things
        elif progress.learner:
            trainer.learner.load_state_dict(progress.learner)
        describe(directory, config, str(engine.objective))
        trackers = Trackers.open(directory, config, progress.step, view.say)
        return Training(engine, trainer, OpenRun(directory, config, trackers), view, progress).run(notes)


class Training:
    """A run between its first step and its last."""

    def __init__(self, engine: Engine, trainer: Trainer, run: OpenRun, view: View, progress: Progress) -> None:
        self.engine, self.trainer, self.records, self.view = engine, trainer, run, view
        self.config, self.learner = engine.config, trainer.learner
        self.number, self.cursor, self.sizes = progress.step, progress.cursor, progress.sizes
        self.interrupt = Interrupt()

    def run(self, notes: list[str]) -> Outcome:
        """To the end, or to an interrupt."""
        config, directory = self.config, self.records.path
        notes = [*notes, *warnings(self.engine.objective, config)]
        self.view.start(self.engine.about(), directory, self.number, notes)
        try:
            with self.interrupt:
                # The checkpoint knows the sizes of the logs.
                if not self.sizes["metrics.jsonl"] and self.number == 0 and config.evaluate.problems:
                    self.view.say(f"evaluating on {config.evaluate.problems} held-out problems")
                    before = self.evaluate()
                    self.records.log({"step": 0, **before.metrics()})
                    self.view.say(f"before: {before}")
                while self.number < config.train.steps and not self.interrupt.asked:
                    self.step()
                self.save()
            finished = self.number >= config.train.steps
            if finished:
                checkpoint.save_model(directory, self.engine.lm, self.number)
            return Outcome(directory, self.number, finished, evaluations(directory))
        finally:
            self.view.stop()
            self.records.close()

    def step(self) -> None:
        """Samples a rollout batch, gives it credit, makes the updates on it and writes it all down."""
        clock, number = Clock(), self.number + 1
        try:
            with clock.part("rollout"), self.room(f"while sampling for step {number}", _FEWER):
                plan, rule = self.engine.objective.continuations, self.trainer.rule()
                experience = collect(self.config, self.engine.lm, self.engine.task, self.cursor, rule, plan)
        except NotFinite as error:
            self.skip(error, clock)
            return
        if self.interrupt.asked:
            return  # nothing has changed yet: the resumed run draws the same responses again
        every = self.config.output.trace_every
        traced = every > 0 and (number == 1 or _due(number, every))
        tracer = Tracer(self.config.output.trace_rollouts if traced else 0)
        with clock.part("update"), self.room(f"in the update of step {number}", _SMALLER):
            step = self.learn(experience, tracer)
        self.number, self.cursor = number, experience.cursor
        self.write(experience, step, tracer)
        self.end({**rollout_metrics(experience), **step_metrics(step)}, clock)

    def learn(self, experience: Experience, tracer: Tracer) -> Step | None:
        """Credit, once and on whole groups; then the updates. None where no group is left to learn from."""
        kept, rollouts, options = experience.kept, experience.rollouts, self.config.train
        if kept is None or rollouts is None:
            if self.learner.objective.memories:
                self.learner.remember(experience.everything())
            return None
        try:
            rollouts = with_optional_inputs(self.engine, self.trainer.forward, rollouts, kept)
            rollouts = self.learner.dated(rollouts, options.epochs * options.minibatches)
            step = self.learner.begin(rollouts, drawn=experience.everything() if self.learner.memory else None)
            improve(self.trainer, step, kept.prompts, tracer)
        except NotFinite as error:
            raise NotFinite(
                f"step {self.number + 1}, {error}; the run can go on from its last checkpoint: {REMEDY}"
            ) from error
        for why in step.statistics.skipped:
            self.view.say(f"step {self.number + 1}: skipped {why}")
        return step

    def write(self, experience: Experience, step: Step | None, tracer: Tracer) -> None:
        """Responses, traces, and on request the whole batch with what the policy says of it after the updates."""
        number, lm, kept = self.number, self.engine.lm, experience.kept
        if _due(number, self.config.output.rollouts_every) and kept is not None and step is not None:
            policy = judged(self.trainer.forward, step.rollouts, kept)
            write_lines(step_file(self.records.path, number), rollout_records(number, lm, kept, step.rollouts, policy))
        for record in sample_records(number, experience.drawn[0], self.config.output.samples):
            self.records.samples.write(record)
        for record in trace_records(number, lm, kept, tracer) if kept is not None else ():
            self.records.trace.write(record)

    def skip(self, error: NotFinite, clock: Clock) -> None:
        """A rollout batch that was not sampled or not rewarded with numbers teaches nothing, if the run goes on."""
        self.number, train = self.number + 1, self.config.train
        if train.nonfinite == "stop":
            raise NotFinite(
                f"step {self.number}, rollouts: {error}; the run can go on from its last checkpoint: {REMEDY}"
            ) from error
        self.view.say(f"step {self.number}: skipped the rollout batch: {error}")
        self.cursor += self.config.rollout.prompts
        unknown = dict.fromkeys(("reward", "accuracy", "entropy", "length"), math.nan)
        self.end({**unknown, **step_metrics(None), "skipped_updates": train.epochs * train.minibatches}, clock)

    def end(self, metrics: dict[str, float], clock: Clock) -> None:
        """The end of every step, whether it learned or was skipped: what is due of evaluation and checkpoint."""
        config, number = self.config, self.number
        if config.evaluate.problems and (number == config.train.steps or _due(number, config.evaluate.every)):
            with clock.part("evaluation"):
                metrics |= self.evaluate().metrics()
        metrics = {"step": number, **metrics, "seconds_update": 0.0, **clock.summary()}
        self.records.log(metrics)
        self.view.step(metrics, config.train.steps)
        if _due(number, config.output.checkpoint_every) and number < config.train.steps:
            self.save()

    def evaluate(self) -> Evaluation:
        """Of the held-out problems, at the weights as they are."""
        with self.room(f"in the evaluation after step {self.number}", f"evaluate.rows or {_SHORTER}"):
            return evaluate(self.config, self.engine.lm, self.engine.task)

    def room(self, doing: str, settings: str) -> AbstractContextManager[None]:
        """For what takes much memory, and by which settings less."""
        again = f"tokenpo train --resume {self.records.path} --accept-changes --set ..."
        return enough_memory(doing, f"lower {settings}, and go on from the last checkpoint with {again}")

    def save(self) -> None:
        state, records = cast(LearnerState, self.learner.state_dict()), self.records
        progress = Progress(self.number, self.cursor, state, records.sizes(), records.settings)
        checkpoint.save(self.records.path, self.engine.lm.model, self.trainer.optimizer, progress)
        checkpoint.prune(self.records.path, self.records.keep, progress.step)


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
