"""The run of a recipe: begins or resumes it, makes its steps, and leaves a model."""

import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ...base.errors import NotFinite, TokenPOError, is_shortage
from ..recipe.config import Config
from ..recipe.objective import warnings
from ..recipe.plan import Plan
from . import checkpoint
from .checkpoint import Progress
from .directory import (
    LOGS,
    OpenRun,
    cut_back,
    describe,
    evaluations,
    hold,
    new_directory,
    note_changes,
    open_checkpoint,
    plan_resume,
)
from .embedded import Local
from .step import Clock, Run, View


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


def train(config: Config, view: View) -> Outcome:
    """Trains a fresh run to its end, or to an interrupt; TokenPOError if something that it needs is not available."""
    plan = Plan(config)
    with closing(Local.open(plan)) as model:
        progress = Progress(sizes=dict.fromkeys(LOGS, 0))
        model.start(None, progress)
        directory = new_directory(config)
        with hold(directory):
            run = None
            try:
                describe(directory, plan)
                model.save(directory, progress)
                run = Run(model, plan, OpenRun(directory, config, 0, view.say), view, progress)
                return _go_on(run, [])
            except TokenPOError as error:
                # Nothing was trained, so the directory goes and the same command works again. NotFinite and lack of
                # memory keep it: their messages say to resume.
                if not (run and run.number) and not isinstance(error, NotFinite) and not is_shortage(error.__cause__):
                    shutil.rmtree(directory)
                raise


def resume(directory: Path, view: View, wanted: Config | None = None, *, accept: bool = False) -> Outcome:
    """Resumes from the newest good checkpoint as if the run had never stopped: bit for bit on a CPU.

    Args:
        wanted: the config; it may differ from the run's in train.steps and output only. None: the run's own.
        accept: other settings may differ too, and changes.jsonl records them.

    Raises:
        TokenPOError: no run, another config, no good checkpoint, or the run is at its end.
    """
    plan, changed = plan_resume(directory, wanted, accept=accept)
    config = plan.config
    with closing(Local.open(plan)) as model, hold(directory):
        saved, progress, notes = open_checkpoint(directory)
        if progress.step >= config.train.steps:
            if checkpoint.has_model(directory, progress.step):
                more = f"--set train.steps={2 * progress.step}"
                raise TokenPOError(f"{directory} has made all of its {progress.step} steps: to go on, add {more}")
            notes.append("all steps are made, but no model/ is there that says it is theirs, so it is written anew")
        model.start(saved, progress)
        if state := dict(progress.learner):
            if changed and state.get("objective") != str(plan.objective):
                fresh = model.learner.state_dict()  # another objective has other memory
                state |= {name: fresh[name] for name in ("objective", "memory")}
            model.learner.load_state_dict(state)
        notes += cut_back(directory, progress)
        if changed:
            notes.append(f"from step {progress.step + 1} on with other settings: {'; '.join(changed)}")
            note_changes(directory, progress.step, changed)
        describe(directory, plan)
        records = OpenRun(directory, config, progress.step, view.say)
        return _go_on(Run(model, plan, records, view, progress), notes)


def _go_on(run: Run, notes: list[str]) -> Outcome:
    """Makes the steps that are left, and the final model."""
    config, directory, objective = run.config, run.records.path, run.plan.objective
    notes = [*notes, *warnings(objective, config)]
    run.view.start(_about(config, run.model.about(), str(objective)), directory, run.number, notes)
    try:
        with run.interrupt:
            # Before the first step, unless the checkpoint shows that this line is already logged.
            if not run.sizes["metrics.jsonl"] and run.number == 0 and config.evaluate.problems:
                run.view.say(f"evaluating on at most {config.evaluate.problems} held-out problems")
                before = run.evaluate()
                run.records.log({"step": 0, **before.metrics()})
                run.view.say(f"before: {before}")
            if run.unlogged:
                run.end({**run.unlogged}, Clock())
            while run.number < config.train.steps and not run.interrupt.asked:
                run.step()
            run.save()
        finished = run.number >= config.train.steps
        left = run.model.finish(directory, run.number) if finished else []
        return Outcome(directory, run.number, finished, evaluations(directory), left)
    finally:
        run.warn(run.watch.said)  # again at the end, where a user looks
        run.records.close()


def _about(config: Config, model: str, objective: str) -> list[str]:
    """Lines on model, task and objective."""
    updates = config.train.epochs * config.train.minibatches
    return [
        f"model {config.model.path}{model}",
        f"task {config.task.name}, {config.train.steps} steps of {config.rollout.prompts} prompts x "
        f"{config.rollout.group_size} responses and {updates} update{'s' if updates > 1 else ''}, seed {config.seed}",
        objective,
    ]
