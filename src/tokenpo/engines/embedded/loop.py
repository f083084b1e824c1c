"""The training loop of the embedded engine: sample, verify, give credit, update; and write everything down."""

from __future__ import annotations

import dataclasses
import functools
import math
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ...base.errors import NotFinite, TokenPOError
from ...base.interrupt import Interrupt
from ...core.objective import Objective, State
from ...models.token_draw import TemperatureRule
from ...recipe.config import Config
from ...recipe.objective import warnings
from ...runs import checkpoint, final
from ...runs.checkpoint import Progress
from ...runs.directory import (
    LOGS,
    Run,
    describe,
    evaluations,
    held,
    new_directory,
    note_changes,
    open_checkpoint,
    require_engine,
    resumed_config,
)
from ...runs.records import Clock, credit_metrics, rollout_metrics, rollout_records, sample_records, trace_records
from ...runs.rollouts import step_file, write_lines
from ...runs.tally import Tally, Tracer
from ...runs.trackers import Trackers, require_trackers
from .engine import Engine, build_engine, judged, with_optional_inputs
from .evaluation import evaluate
from .rollout import Experience, collect
from .step import Learner, RatioCheck, improve
from .view import View

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
    require_trackers(config.output.track)
    engine = build_engine(config)
    with closing(engine.task):
        learner = Learner.of(config, engine.lm, engine.objective)
        directory = new_directory(config)
        with held(directory):
            describe(directory, config, str(engine.objective))
            progress = Progress(sizes=dict.fromkeys(LOGS, 0))
            checkpoint.begin(directory, progress)
            try:
                trackers = Trackers.open(directory, config, 0, view.say)
            except TokenPOError:
                # It was empty and nothing was trained: the next attempt can have it.
                shutil.rmtree(directory)
                raise
            return _run(engine, learner, Run(directory, config, trackers), progress, view, [])


def resume(directory: Path, view: View, wanted: Config | None = None, *, accept: bool = False) -> Outcome:
    """Goes on from the newest good checkpoint as if the run had never stopped: bit for bit on a CPU.

    Args:
        wanted: None for the run's own config; another may differ in train.steps and in output only.
        accept: it may differ in everything; what differs is written to changes.jsonl.

    Raises:
        TokenPOError: no run there, one of another engine, another config, no good checkpoint, or the run is at its end.
    """
    require_engine(directory, "embedded")
    config, changed = resumed_config(directory, wanted, accept=accept)
    require_trackers(config.output.track)
    engine = build_engine(config)
    with closing(engine.task), held(directory):
        learner = Learner.of(config, engine.lm, engine.objective)
        progress, notes = open_checkpoint(directory, engine.lm.model, learner.optimizer)
        if progress.step >= config.train.steps:
            if final.is_there(directory, progress.step):
                raise TokenPOError(
                    f"{directory} has made all of its {progress.step} steps: to go on, resume it with "
                    f"--set train.steps={2 * progress.step}"
                )
            notes.append("all steps are made, but no model/ is there that says it is theirs, so it is written anew")
        if changed:
            notes.append(f"from step {progress.step + 1} on with other settings: {'; '.join(changed)}")
            note_changes(directory, progress.step, changed)
            if any(line.startswith("method.") for line in changed):
                progress = dataclasses.replace(progress, memory=None)  # another objective remembers other things
        describe(directory, config, str(engine.objective))
        trackers = Trackers.open(directory, config, progress.step, view.say)
        return _run(engine, learner, Run(directory, config, trackers), progress, view, notes)


def _run(engine: Engine, learner: Learner, run: Run, progress: Progress, view: View, notes: list[str]) -> Outcome:
    config, directory = engine.config, run.path
    view.start(engine, directory, progress.step, [*notes, *warnings(engine.objective, config)])
    try:
        with Interrupt() as interrupt:
            # The checkpoint knows the sizes of the logs.
            if not progress.sizes["metrics.jsonl"] and progress.step == 0 and config.evaluate.problems:
                view.say(f"evaluating on {config.evaluate.problems} held-out problems")
                before = evaluate(engine)
                run.log({"step": 0, **before.metrics()})
                view.say(f"before: {before}")
            check = RatioCheck()
            while progress.step < config.train.steps and not interrupt.asked:
                progress = _step(engine, learner, run, progress, view, interrupt, check)
            _save(engine, learner, run, progress)
        finished = progress.step >= config.train.steps
        if finished:
            final.save(directory, engine.lm, progress.step)
        return Outcome(directory, progress.step, finished, evaluations(directory))
    finally:
        view.stop()
        run.close()


def _step(
    engine: Engine, learner: Learner, run: Run, progress: Progress, view: View, interrupt: Interrupt, check: RatioCheck
) -> Progress:
    """One rollout batch and the updates on it; where the run stands afterwards."""
    config, clock, state = engine.config, Clock(), _recalled(engine.objective, progress)
    try:
        with clock.part("rollout"):
            experience = collect(config, engine.lm, engine.task, progress.cursor, _rule(engine.objective, state))
    except NotFinite as error:
        skipped, metrics = _skipped(config, progress, view, error)
        return _ended(engine, learner, run, skipped, view, clock, metrics)
    if interrupt.asked:
        # Nothing has changed yet: the resumed run draws the same responses again.
        return progress
    step = progress.step + 1
    traced = config.output.trace_every > 0 and (step == 1 or _due(step, config.output.trace_every))
    tracer = Tracer(config.output.trace_rollouts if traced else 0)
    try:
        experience = _completed(engine, learner, experience, clock)
        tally, metrics = _learn(engine, learner, experience, state, progress.updates, tracer, clock, check)
    except NotFinite as error:
        raise NotFinite(f"step {step}, {error}; the run can go on from its last checkpoint: {REMEDY}") from error
    for why in tally.skipped:
        view.say(f"step {step}: skipped {why}")
    if _due(step, config.output.rollouts_every):
        _record(engine, learner, run, experience, step)
    metrics = {"step": step, **rollout_metrics(experience), **metrics, **tally.summary()}
    _write(engine, run, experience, tracer, step)
    learned = Progress(
        step=step,
        updates=progress.updates + tally.updates,
        cursor=experience.cursor,
        memory=_remembered(engine.objective, state, experience),
    )
    return _ended(engine, learner, run, learned, view, clock, metrics)


def _skipped(config: Config, progress: Progress, view: View, error: NotFinite) -> tuple[Progress, dict[str, float]]:
    """A rollout batch that was not sampled or not rewarded with numbers teaches nothing, if the run is not to stop."""
    step = progress.step + 1
    if config.train.nonfinite == "stop":
        raise NotFinite(
            f"step {step}, rollouts: {error}; the run can go on from its last checkpoint: {REMEDY}"
        ) from error
    view.say(f"step {step}: skipped the rollout batch: {error}")
    unknown = dict.fromkeys(("reward", "accuracy", "entropy", "length"), math.nan)
    planned = config.train.epochs * config.train.minibatches
    metrics = {"step": step, **unknown, "groups": 0, "zero_advantage_groups": 1.0, **Tally().summary()}
    metrics["skipped_updates"] = planned
    return dataclasses.replace(progress, step=step, cursor=progress.cursor + config.rollout.prompts), metrics


def _ended(
    engine: Engine,
    learner: Learner,
    run: Run,
    progress: Progress,
    view: View,
    clock: Clock,
    metrics: dict[str, float],
) -> Progress:
    """The end of every step, whether it learned or was skipped: what is due of evaluation and checkpoint."""
    config, step = engine.config, progress.step
    if config.evaluate.problems and (step == config.train.steps or _due(step, config.evaluate.every)):
        with clock.part("evaluation"):
            metrics |= evaluate(engine).metrics()
    metrics |= {"seconds_update": 0.0, **clock.summary()}
    run.log(metrics)
    view.step(metrics, config.train.steps)
    if _due(step, config.output.checkpoint_every) and step < config.train.steps:
        _save(engine, learner, run, progress)
    return progress


def _completed(engine: Engine, learner: Learner, experience: Experience, clock: Clock) -> Experience:
    """The batch with what takes another forward pass."""
    if experience.kept is None or experience.rollouts is None:
        return experience
    with clock.part("update"):
        rollouts = with_optional_inputs(engine, learner.forward, experience.rollouts, experience.kept)
    return dataclasses.replace(experience, rollouts=rollouts)


def _learn(
    engine: Engine,
    learner: Learner,
    experience: Experience,
    state: State,
    updates: int,
    tracer: Tracer,
    clock: Clock,
    check: RatioCheck,
) -> tuple[Tally, dict[str, float]]:
    """Credit once, on whole groups; then the updates. Nothing where dynamic sampling found nothing to learn from."""
    kept, rollouts = experience.kept, experience.rollouts
    if kept is None or rollouts is None:
        return Tally(), {"groups": 0, "zero_advantage_groups": 1.0}
    with clock.part("update"):
        credit = engine.objective.prepare(rollouts, state)
        tally = improve(learner, rollouts, kept.prompts, credit, updates, tracer, check)
    return tally, credit_metrics(rollouts, credit)


def _write(engine: Engine, run: Run, experience: Experience, tracer: Tracer, step: int) -> None:
    kept = experience.kept
    for record in sample_records(step, experience.drawn[0], engine.config.output.samples):
        run.samples.write(record)
    if kept is not None:
        for record in trace_records(step, engine.lm, kept, tracer):
            run.trace.write(record)


def _record(engine: Engine, learner: Learner, run: Run, experience: Experience, step: int) -> None:
    """The whole batch, with what the policy says of it after the updates."""
    kept, rollouts = experience.kept, experience.rollouts
    if kept is not None and rollouts is not None:
        policy = judged(learner.forward, rollouts, kept)
        write_lines(step_file(run.path, step), rollout_records(step, engine.lm, kept, rollouts, policy))


def _save(engine: Engine, learner: Learner, run: Run, progress: Progress) -> None:
    progress = dataclasses.replace(progress, sizes=run.sizes(), settings=run.settings)
    checkpoint.save(run.path, engine.lm.model, learner.optimizer, progress)
    checkpoint.prune(run.path, run.keep, progress.step)


def _rule(objective: Objective, state: State) -> TemperatureRule | None:
    adaptive = objective.temperature
    return None if adaptive is None else functools.partial(adaptive, numbers=state[adaptive])


def _recalled(objective: Objective, progress: Progress) -> State:
    if progress.memory is None:
        return objective.start()
    return dict(zip(objective.memories, progress.memory, strict=True))


def _remembered(objective: Objective, state: State, experience: Experience) -> list[dict[str, float]]:
    """The objective's memories after everything that was drawn, groups that were discarded included."""
    if not objective.memories:
        return []
    state = objective.after(state, experience.everything())
    return [dict(state[memory]) for memory in objective.memories]


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
