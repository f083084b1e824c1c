"""The run directory: the files that describe a run, its logs, and its resumption.

config.json objective.txt versions.json                 the run; tokenpo train RUN/config.json repeats it
inputs.json                                              hashes of the model and the data that it reads
metrics.jsonl samples.jsonl trace.jsonl                  one line per step, sampled response, traced response
rollouts/step-NNNNNN.jsonl                               whole rollout batches, every output.rollouts_every steps
checkpoints/ model/ report.html                          checkpoints to resume from, the final model, the report
adapter/                                                 with LoRA, the adapters that are merged into model/
changes.jsonl                                            settings that a resumed run changed, on request
trackers.json                                            the last step sent to each live tracker, if there is one
"""

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ...base import text
from ...base.errors import TokenPOError
from ...base.files import expanded, explained, is_fresh, json_object, locked, making, numbered, sweep, write_whole
from ...base.jsonl import Lines, cut, whole_lines, with_step
from ...records import drop_after
from ...records.log import describe as describe_run
from ...records.log import versions
from ..recipe.config import Config, differences, parse_config, read_raw
from ..recipe.plan import Plan
from . import checkpoint
from .checkpoint import Progress
from .trackers import Trackers

# Settings that may change when a run is resumed: no step depends on them.
FREE = ("train.steps", "output.")
LOGS = ("metrics.jsonl", "samples.jsonl", "trace.jsonl")
INPUTS = "inputs.json"


class OpenRun:
    """The logs and live trackers of a run that goes on after `step`; raises as `Trackers`."""

    def __init__(self, path: Path, config: Config, step: int, say: Callable[[str], None]) -> None:
        self.path, self._trackers = path, Trackers(path, config, say)
        self._logs = self.metrics, self.samples, self.trace = [Lines(path / name) for name in LOGS]

    def log(self, metrics: Mapping[str, float]) -> None:
        self.metrics.write(metrics)
        self._trackers.send(metrics)

    def sizes(self) -> dict[str, int]:
        """Bytes of each log after flushing it to disk."""
        return {lines.path.name: lines.sync() for lines in self._logs}

    def close(self) -> None:
        for lines in self._logs:
            lines.close()
        self._trackers.close()


def evaluations(path: Path) -> list[dict[str, float]]:
    """The lines of a run's metrics with an evaluation; the first is from before training."""
    lines = whole_lines(path / "metrics.jsonl", with_step, [])
    return [line.value for line in lines if "eval/accuracy" in line.value]


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Locks the run directory for this process.

    Raises:
        TokenPOError: another process trains this run, or a file cannot be written; complete files stay complete.
    """
    from safetensors import SafetensorError

    def sentence(why: str) -> str:
        begun = (path / "config.json").is_file()
        remedy = f"go on with tokenpo train --resume {path}" if begun else "give the same command again"
        return f"the run directory {path} cannot be written: {why}: make room, then {remedy}"

    busy = f"{path} is being trained by another process: wait for it, or stop it"
    with explained(sentence, SafetensorError), locked(path / ".lock", busy):
        yield


def new_directory(config: Config) -> Path:
    """Makes the directory of a fresh run: the next free name, or output.dir, which must be empty."""
    path = config.directory()
    with making(path):
        if config.output.dir is None:
            path.parent.mkdir(parents=True, exist_ok=True)  # apart, so that FileExistsError below means the last name
            for free in itertools.chain([path], numbered(path)):
                with contextlib.suppress(FileExistsError):
                    free.mkdir()
                    return free
        path.mkdir(parents=True, exist_ok=True)
        if not is_fresh(path):
            raise TokenPOError(f"{path} is not empty: resume it with --resume {path}, or give another with --out")
    return path


def describe(path: Path, plan: Plan) -> None:
    """Writes the files that describe a run; the config first, because a directory with it can be resumed."""
    describe_run(path, plan.config.model_dump(), str(plan.objective))
    record = {**plan.contents, "settings": plan.settings}
    write_whole(path / INPUTS, json.dumps(record, indent=2) + "\n")


def changed_inputs(path: Path, plan: Plan) -> list[str]:
    """One line for each file that changed since the run in this directory began."""
    then, now = json_object(path / INPUTS), plan.contents
    common = [name for name in then if name in now]
    return text.differences({name: then[name] for name in common}, {name: now[name] for name in common})


def plan_resume(path: Path, wanted: Config | None, *, accept: bool = False) -> tuple[Plan, list[str]]:
    """(plan of the run at `path` or of `wanted`, lines with the settings and files that changed).

    Args:
        wanted: the config to resume with; None is the run's own.
        accept: settings that steps depend on, and files that the run reads, may differ.

    Raises:
        TokenPOError: no run, another directory in `wanted`, or a setting or file that steps depend on differs; the
            message shows the difference.
    """
    file = path / "config.json"
    old = parse_config(read_raw(file), str(file))
    plan = Plan(wanted or old)
    place = plan.config.output.dir
    if place not in (None, old.output.dir) and expanded(place).resolve() != path.resolve():
        raise TokenPOError(f"{path} is resumed where it is, not in {place}: leave out --out and output.dir")
    # config.json may have been edited: a checkpoint has the settings of its steps, inputs.json those before any step.
    last = checkpoint.last_progress(path) or Progress()
    settings = last.settings or json_object(path / INPUTS).get("settings")
    if settings and isinstance(settings, Mapping):
        old = parse_config(settings, f"the record of step {last.step} in {path}")
    changed = [line for line in differences(old, plan.config) if not line.startswith(FREE)]
    changed += changed_inputs(path, plan)
    if changed and not accept:
        remedy = "leave settings and files as they were, say --accept-changes, or start a new run with --out"
        raise TokenPOError(f"{path} cannot be resumed with another config ({'; '.join(changed)}): {remedy}")
    return plan, changed


def note_changes(path: Path, step: int, changed: Sequence[str]) -> None:
    lines = Lines(path / "changes.jsonl")
    lines.write({"step": step, "changes": changed, "versions": versions()})
    lines.close()


def open_checkpoint(path: Path) -> tuple[Path | None, Progress, list[str]]:
    """(newest good checkpoint or None before the first, progress of the run, notes for the user)."""
    for name in ("model", "adapter"):
        sweep(path / name)
    logged = any((path / name).is_file() and (path / name).stat().st_size for name in LOGS)
    if not checkpoint.exists(path) and not logged:
        # It died before its first checkpoint, so nothing is lost: write that checkpoint and begin.
        progress = Progress(sizes=dict.fromkeys(LOGS, 0))
        checkpoint.save(path, progress)
        return None, progress, ["there is no checkpoint yet, so the run begins anew"]
    newest, progress, passed = checkpoint.newest(path)
    return newest, progress, [f"{why}; an earlier one is used" for why in passed]


def cut_back(path: Path, progress: Progress) -> list[str]:
    notes: list[str] = []
    for name in LOGS:
        if missing := cut(path / name, progress.sizes.get(name, 0)):
            notes.append(f"{missing}: the run goes on without those lines")
    drop_after(path, progress.step)
    before, now = json_object(path / "versions.json"), versions()
    changed = [f"{key} {before.get(key)} -> {now[key]}" for key in now if before.get(key) != now[key]]
    if before and changed:
        notes.append(f"not the software that began this run, so it may go on differently: {', '.join(changed)}")
    return notes
