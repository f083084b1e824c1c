"""The training loop of the embedded engine: sample, verify, give credit, update; and write everything down."""

from __future__ import annotations

import dataclasses
import functools
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from .. import lm as language
from ..errors import TokenPOError
from ..objective import Objective, State
from ..sampling import TemperatureRule
from . import checkpoint
from .checkpoint import Progress
from .config import Config
from .engine import Engine, build_engine, with_optional_inputs
from .evaluation import evaluate
from .interrupt import Interrupt
from .objective import warnings
from .records import Clock, credit_metrics, rollout_metrics, sample_records, trace_records
from .rollout import Experience, collect
from .run import Run, describe, new_directory, open_checkpoint, resumed_config
from .step import Learner, improve
from .tally import Tally, Tracer
from .trackers import Trackers, require_trackers
from .view import View


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
        describe(directory, config, str(engine.objective))
        try:
            trackers = Trackers.open(directory, config, 0, view.say)
        except TokenPOError:
            # It was empty and nothing was trained: the next attempt can have it.
            shutil.rmtree(directory)
            raise
        return _run(engine, learner, Run(directory, config, trackers), Progress(), view, [])


def resume(directory: Path, view: View, wanted: Config | None = None) -> Outcome:
    """Goes on from the newest checkpoint as if the run had never stopped: bit for bit on a CPU.

    Args:
        wanted: None for the run's own config; another may differ in train.steps and in output only.

    Raises:
        TokenPOError: no run there, another config, no good checkpoint, or the run is at its end.
    """
    config = resumed_config(directory, wanted)
    require_trackers(config.output.track)
    engine = build_engine(config)
    with closing(engine.task):
        learner = Learner.of(config, engine.lm, engine.objective)
        progress, notes = open_checkpoint(directory, engine.lm.model, learner.optimizer)
        if progress.step >= config.train.steps:
            raise TokenPOError(
                f"{directory} has made all of its {config.train.steps} steps: to go on, resume it with "
                f"--set train.steps={2 * config.train.steps}"
            )
        describe(directory, config, str(engine.objective))
        trackers = Trackers.open(directory, config, progress.step, view.say)
        return _run(engine, learner, Run(directory, config, trackers), progress, view, notes)


def _run(engine: Engine, learner: Learner, run: Run, progress: Progress, view: View, notes: list[str]) -> Outcome:
    config, directory = engine.config, run.path
    view.start(engine, directory, progress.step, [*notes, *warnings(engine.objective, config)])
    first = progress.step + 1
    try:
        with Interrupt() as interrupt:
            # A checkpoint knows the sizes of the logs, so without sizes nothing was written yet.
            if not progress.sizes and config.evaluate.problems:
                view.say(f"evaluating on {config.evaluate.problems} held-out problems")
                before = evaluate(engine)
                run.log({"step": 0, **before.metrics()})
                view.say(f"before: {before}")
            while progress.step < config.train.steps and not interrupt.asked:
                progress = _step(engine, learner, run, progress, view, interrupt, fresh=progress.step + 1 == first)
            _save(engine, learner, run, progress)
        finished = progress.step >= config.train.steps
        if finished:
            language.save(engine.lm, directory / "model")
        return Outcome(directory, progress.step, finished, run.evaluations())
    finally:
        view.stop()
        run.close()


def _step(
    engine: Engine, learner: Learner, run: Run, progress: Progress, view: View, interrupt: Interrupt, *, fresh: bool
) -> Progress:
    """One rollout batch and the updates on it; where the run stands afterwards."""
    config, clock, state = engine.config, Clock(), _recalled(engine.objective, progress)
    with clock.part("rollout"):
        experience = collect(config, engine.lm, engine.task, progress.cursor, _rule(engine.objective, state))
    if interrupt.asked:
        # Nothing has changed yet: the resumed run draws the same responses again.
        return progress
    step = progress.step + 1
    traced = config.output.trace_every > 0 and (step == 1 or _due(step, config.output.trace_every))
    tracer = Tracer(config.output.trace_rollouts if traced else 0)
    tally, metrics = _learn(engine, learner, experience, state, progress.updates, tracer, clock, check_ratio=fresh)
    metrics = {"step": step, **rollout_metrics(experience), **metrics, **tally.summary()}
    if config.evaluate.problems and (step == config.train.steps or _due(step, config.evaluate.every)):
        with clock.part("evaluation"):
            metrics |= evaluate(engine).metrics()
    metrics |= {"seconds_update": 0.0, **clock.summary()}
    _write(engine, run, experience, tracer, step, metrics)
    view.step(metrics, config.train.steps)
    progress = Progress(
        step=step,
        updates=progress.updates + tally.updates,
        cursor=experience.cursor,
        memory=_remembered(engine.objective, state, experience),
    )
    if _due(step, config.output.checkpoint_every) and step < config.train.steps:
        _save(engine, learner, run, progress)
    return progress


def _learn(
    engine: Engine,
    learner: Learner,
    experience: Experience,
    state: State,
    updates: int,
    tracer: Tracer,
    clock: Clock,
    *,
    check_ratio: bool,
) -> tuple[Tally, dict[str, float]]:
    """Credit once, on whole groups; then the updates. Nothing where dynamic sampling found nothing to learn from."""
    kept, rollouts = experience.kept, experience.rollouts
    if kept is None or rollouts is None:
        return Tally(), {"groups": 0, "zero_advantage_groups": 1.0}
    with clock.part("update"):
        rollouts = with_optional_inputs(engine, learner.forward, rollouts, kept)
        credit = engine.objective.prepare(rollouts, state)
        tally = improve(learner, rollouts, kept.prompts, credit, updates, tracer, check_ratio=check_ratio)
    return tally, credit_metrics(rollouts, credit)


def _write(
    engine: Engine, run: Run, experience: Experience, tracer: Tracer, step: int, metrics: dict[str, float]
) -> None:
    for record in sample_records(step, experience.drawn[0], engine.config.output.samples):
        run.samples.write(record)
    if experience.kept is not None:
        for record in trace_records(step, engine.lm, experience.kept, tracer):
            run.trace.write(record)
    run.log(metrics)


def _save(engine: Engine, learner: Learner, run: Run, progress: Progress) -> None:
    progress = dataclasses.replace(progress, sizes=run.sizes())
    checkpoint.save(run.path, engine.lm.model, learner.optimizer, progress)
    checkpoint.prune(run.path, run.keep)


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
