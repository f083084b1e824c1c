"""The runs of a comparison, each with its directory: methods times seeds to train, or runs of any host that exist.

Runs that exist are grouped under the labels that the user gives: `LABEL=PATTERN`. Planned runs are trained as
processes, several at once: finished ones are skipped, unfinished ones resumed, and other directories are rejected.
"""

import glob
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from ...base.errors import TokenPOError
from ...base.files import expanded, is_fresh, make_directory, opened_in_place, read_text
from ...base.jsonl import whole_lines, with_step
from ...base.terminal import Interrupt
from ...base.text import duration, flat
from ...records.run import Run, read_run
from ...train.recipe import plan as recipes
from ...train.recipe.command_line import SYNTAX, Entry, parse_entries
from ...train.recipe.config import Config, differences, load_config, parse_config
from ...train.recipe.files import find_recipe
from ...train.recipe.objective import accepted_here
from ...train.run import checkpoint
from ...train.run.directory import changed_inputs
from ..page.text import visible

EVALUATIONS = 10


@dataclass(frozen=True)
class PlannedRun:
    """One run: `arguments` for `tokenpo train`, and the resulting `config`."""

    label: str
    seed: int
    directory: Path
    config: Config
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.label} seed {self.seed}"


@dataclass(frozen=True)
class Subject:
    """The compared runs of several methods, by label.

    `place` is their directory, `planned` their number, `config` what they share. `methods` holds name and options, as
    in the section `method` of a config.
    """

    name: str
    place: Path
    labels: tuple[str, ...]
    methods: Mapping[str, Mapping[str, Any]]
    objectives: Mapping[str, str]
    seeds: tuple[int, ...]
    planned: int
    config: Mapping[str, Any]
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{len(self.labels)} methods on {self.name}, {len(self.seeds)} seeds"


@dataclass(frozen=True)
class Plan:
    """A planned comparison; `runs` has all methods with the first seed, then all with the second, so that a machine
    that is slow for a while slows all methods.
    """

    subject: Subject
    runs: tuple[PlannedRun, ...]


def make_plan(recipe: str, methods: str, seeds: int, *, overrides: Sequence[str] = (), out: Path | None = None) -> Plan:
    """The runs of `recipe` with `methods` (see `parse_methods`) and `seeds` seeds, beginning with the recipe's own.

    By default every run has one thread and ten evaluations. Overrides change both, the recipe only the evaluations.
    """
    entries = parse_methods(methods)
    if seeds < 2:
        raise TokenPOError(f"--seeds {seeds} gives no pairs to compare: give at least 2, better 10")
    overridden = {override.partition("=")[0].strip() for override in overrides}
    for setting, instead in (("method.name", "--methods"), ("method", "--methods"), ("output.dir", "--out")):
        if setting in overridden:
            raise TokenPOError(f"--set {setting} differs between the runs of a comparison: use {instead}")
    base = load_config(find_recipe(recipe), overrides=overrides)
    if not base.evaluate.problems:
        raise TokenPOError(f"{recipe} has no held-out problems to compare by: set evaluate.problems above 0")
    defaults = {"evaluate.every": base.evaluate.every or -(-base.train.steps // EVALUATIONS), "threads": 1}
    settings = (*(f"{name}={value}" for name, value in defaults.items() if name not in overridden), *overrides)
    out = expanded(out or Path("runs", f"compare-{base.name}"))
    numbers = tuple(range(base.seed, base.seed + seeds))
    runs = tuple(_run(recipe, entry, seed, settings, out) for seed in numbers for entry in entries)
    firsts = runs[: len(entries)]  # one of each method
    objectives = {run.label: str(accepted_here(run.config)) for run in firsts}
    shared = firsts[0].config.model_dump(mode="json", exclude={"method", "seed", "output"})
    return Plan(
        Subject(
            firsts[0].config.name, out, tuple(objectives), objectives=objectives, seeds=numbers, planned=len(runs),
            methods={run.label: run.config.method.model_dump() for run in firsts},
            config={"recipe": recipe, **shared},
            notes=tuple(_notes(firsts, entries, base)),
        ),
        runs,
    )  # fmt: skip


def parse_methods(text: str) -> list[Entry]:
    """The entries of `--methods`; raises TokenPOError for fewer than two."""
    entries = parse_entries(text)
    if len(entries) < 2:
        raise TokenPOError(f"--methods {text!r} holds nothing to compare with: name at least two; {SYNTAX}")
    return entries


def pairs(labels: Sequence[str], baseline: str) -> list[tuple[str, str]]:
    """(method, baseline) for every other method; with baseline "all", every later method with every earlier one."""
    if baseline == "all":
        return [(b, a) for i, a in enumerate(labels) for b in labels[i + 1 :]]
    if baseline not in labels:
        raise TokenPOError(f"--baseline {baseline} is not among the methods: give one of {', '.join(labels)}, or all")
    return [(label, baseline) for label in labels if label != baseline]


def _run(recipe: str, entry: Entry, seed: int, settings: Sequence[str], out: Path) -> PlannedRun:
    directory = out / f"{re.sub(r'[^A-Za-z0-9_.=+-]+', '-', entry.label)}-seed{seed}"
    overrides = [*settings, *(f"method.{key}={value}" for key, value in entry.options), f"seed={seed}"]
    config = load_config(find_recipe(recipe), method=entry.method, overrides=overrides, out=directory)
    words = [word for setting in overrides for word in ("--set", setting)]
    arguments = (recipe, "--method", entry.method, *words, "--out", str(directory), "--no-report")
    return PlannedRun(entry.label, seed, directory, config, arguments)


def _notes(runs: Sequence[PlannedRun], entries: Sequence[Entry], base: Config) -> Iterator[str]:
    for run, entry in zip(runs, entries, strict=True):
        options = run.config.method.options.items()
        if inherited := [f"{key}={value!r}" for key, value in options if key not in dict(entry.options)]:
            yield f"{run.label} takes from the recipe or --set: {', '.join(inherited)}."
    if base.rollout.dynamic_sampling:
        yield (
            "Dynamic sampling drops groups by what the policy answers: the methods meet the same problems in the same "
            "order, but from the first refill on not at the same step."
        )


FORM = "write LABEL='PATTERN' twice or more, e.g. dapo='runs/dapo-*' hapo='runs/hapo-*'"
# Settings that name a run or its method; runs may differ in them.
NAMES = ("name", "seed", "method", "output", "verl.algorithm.tokenpo.method", "verl.algorithm.tokenpo.options")
# Settings that all runs of a label should share; other hosts' settings have names and places among them.
SHARED = ("model", "task", "rollout", "train", "teacher", "critic", "evaluate")
MOST_SETTINGS = 5  # settings named in a note

Grouped = Mapping[str, Mapping[int, Run]]  # label -> seed -> run


def read_existing(given: Sequence[str]) -> tuple[Subject, Grouped]:
    """Reads the runs of each `LABEL=PATTERN`: their subject, and label -> seed -> run.

    Leaves out unfinished runs, with a note.
    """
    grouped, unfinished = _grouped(given)
    if len(grouped) < 2:
        raise TokenPOError(f"--runs has finished runs of {', '.join(grouped) or 'no label'} only: {FORM}")
    runs = [(label, seed, run) for label, by_seed in grouped.items() for seed, run in by_seed.items()]
    settings = [(label, flat(run.config)) for label, _, run in runs]
    first, *rest = (its for _, its in settings)
    shared = {key: x for key, x in first.items() if all(key in of and of[key] == x for of in rest)}
    firsts = {label: next(iter(by_seed.values())) for label, by_seed in grouped.items()}
    methods = {label: run.config.get("method") for label, run in firsts.items()}
    subject = Subject(
        str(shared.get("name") or shared.get("task.name") or "runs that exist"), Path("--runs"), tuple(grouped),
        methods={label: method if isinstance(method, dict) else {} for label, method in methods.items()},
        objectives={label: run.objective.strip() for label, run in firsts.items()},
        seeds=tuple(sorted({seed for _, seed, _ in runs})), planned=len(runs) + len(unfinished),
        config={key: x for key, x in shared.items() if not key.startswith(NAMES)},
        notes=(*unfinished, *_unpaired(grouped), *_mixed(grouped), *_unlike(settings)),
    )  # fmt: skip
    return subject, grouped


def _grouped(given: Sequence[str]) -> tuple[Grouped, list[str]]:
    """The finished runs by label and seed, and a note on each unfinished one."""
    grouped: dict[str, dict[int, Run]] = {}
    unfinished = []
    for text in given:
        label, paths = _matched(text)
        for path in paths:
            run = read_run(path)
            settings = flat(run.config)
            steps, seed = settings.get("train.steps"), settings.get("seed", settings.get("verl.data.seed"))
            if not isinstance(seed, int):
                raise TokenPOError(f"{path} says no seed in config.json, and seeds pair runs: leave it out")
            if isinstance(steps, int) and run.series("step")[-1][0] < steps:
                unfinished.append(f"{run.label} did not make all of its steps, and is left out.")
                continue
            first = grouped.setdefault(label, {}).setdefault(seed, run)
            if first is not run:
                raise TokenPOError(f"{first.path} and {run.path} are both {label} with seed {seed}: leave one out")
    return grouped, unfinished


def _matched(text: str) -> tuple[str, list[Path]]:
    """The label of `LABEL=PATTERN`, and the directories that the pattern matches."""
    label, _, pattern = (part.strip() for part in text.partition("="))
    if not label or not pattern:
        raise TokenPOError(f"--runs {text}: {FORM}")
    # Path.glob rejects absolute patterns.
    paths = [Path(path) for path in sorted(glob.glob(str(expanded(pattern))))]  # noqa: PTH207
    if not (directories := [path for path in paths if path.is_dir()]):
        raise TokenPOError(f"--runs {text}: no directory matches {pattern}: {FORM}")
    return label, directories


def _unpaired(grouped: Grouped) -> Iterator[str]:
    every = {seed for by_seed in grouped.values() for seed in by_seed}
    missing = {label: sorted(every - by_seed.keys()) for label, by_seed in grouped.items()}
    if lacking := [f"{label} lacks {', '.join(map(str, seeds))}" for label, seeds in missing.items() if seeds]:
        yield f"Only common seeds are compared: {'; '.join(lacking)}. Train them, or leave out their partners."


def _mixed(grouped: Grouped) -> Iterator[str]:
    for label, by_seed in grouped.items():
        if len({run.objective.strip() for run in by_seed.values()}) > 1:
            yield f"The runs of {label} have different objectives: its pattern matches several methods."


def _unlike(settings: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Yields a note if runs differ in more than the method and the seed."""
    odd = []
    for key in dict.fromkeys(key for _, its in settings for key in its):
        values: dict[str, set[str]] = {}
        for label, its in settings:
            values.setdefault(label, set()).add(repr(its.get(key)))
        steady = all(len(known) == 1 for known in values.values())  # a name or a place of another host's is not
        several = len(set().union(*values.values())) > 1
        if several and (steady or key.partition(".")[0] in SHARED) and not key.startswith(NAMES):
            odd.append(key)
    if odd:
        more = f" and {len(odd) - MOST_SETTINGS} more" if len(odd) > MOST_SETTINGS else ""
        yield f"The runs were not trained alike: they differ in {', '.join(odd[:MOST_SETTINGS])}{more}."


THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
POLL = 0.05  # seconds between looks at the processes


class State(Enum):
    """The state of a run directory: empty, a run to resume, or a finished run."""

    NEW = "new"
    BEGUN = "begun"
    DONE = "done"


class Failure(NamedTuple):
    """A run that ended before its last step; `line` is the last error line of its log."""

    run: PlannedRun
    line: str
    log: Path


class Ended(NamedTuple):
    """The runs that failed, and whether Ctrl-C stopped the comparison."""

    failures: tuple[Failure, ...]
    interrupted: bool


Command = Callable[[PlannedRun, bool], list[str]]


def train_command(run: PlannedRun, resume: bool) -> list[str]:
    again = ["--resume", str(run.directory)] if resume else []
    return [sys.executable, "-P", "-m", "tokenpo", "train", *run.arguments, *again]


def state(run: PlannedRun) -> State:
    """The state of a run's directory; TokenPOError for another run's, or a directory without a run."""
    if not run.directory.exists() or (run.directory.is_dir() and is_fresh(run.directory)):
        return State.NEW
    file = run.directory / "config.json"
    try:
        old = parse_config(json.loads(read_text(file)), str(file))
    except (ValueError, TypeError, OSError) as error:
        raise TokenPOError(f"{run.directory} is not a run ({error}): move it, or choose another --out") from error
    changed = [line for line in differences(old, run.config) if not line.startswith("output.")]
    changed += changed_inputs(run.directory, recipes.Plan(run.config))
    if changed:
        raise TokenPOError(
            f"{run.directory} holds a run with another config ({'; '.join(changed)}): give the settings and files that "
            "it was made with, or choose another --out"
        )
    return State.DONE if is_whole(run) else State.BEGUN


def is_whole(run: PlannedRun) -> bool:
    """Whether all steps are made, and the model is saved if a checkpoint still exists to save it from."""
    steps = run.config.train.steps
    return steps_made(run) >= steps and not checkpoint.owes_model(run.directory, steps)


def steps_made(run: PlannedRun) -> int:
    """The last step in the whole lines of metrics.jsonl; 0 without one."""
    log = run.directory / "metrics.jsonl"
    return max((line.value["step"] for line in whole_lines(log, with_step, [])), default=0) if log.is_file() else 0


def execute(runs: Sequence[PlannedRun], jobs: int, out: Path, command: Command = train_command) -> Ended:
    """Trains every unfinished run, `jobs` at a time. A run that fails does not stop the others.

    Prints a line for each run that ends. On Ctrl-C the active runs save a checkpoint and end, and no more are started.
    """
    waiting = [(run, its) for run in runs if (its := state(run)) is not State.DONE]
    print(f"{out}: {len(runs)} runs, {len(runs) - len(waiting)} done, {jobs} at a time", flush=True)
    logs = make_directory(out / "logs")
    active: list[_Process] = []
    failures: list[Failure] = []
    stopping = False
    with Interrupt() as interrupt:
        try:
            while waiting or active:
                if interrupt.asked and not stopping:
                    stopping = True
                    waiting.clear()
                    for process in active:
                        process.popen.send_signal(signal.SIGINT)
                while waiting and len(active) < jobs:
                    active.append(_begin(*waiting.pop(0), logs, command))
                for process in [process for process in active if process.popen.poll() is not None]:
                    active.remove(process)
                    if stopping:
                        continue
                    failure, left = _failure(process), len(waiting) + len(active)
                    failures += [failure] if failure else []
                    how = f"failed: {failure.line}" if failure else "done"
                    took = duration(time.monotonic() - process.began)
                    print(f"[{len(runs) - left}/{len(runs)}] {process.run.name}: {how} in {took}", flush=True)
                time.sleep(POLL if active else 0)
        finally:
            for process in active:
                process.popen.kill()
    return Ended(tuple(failures), stopping)


class _Process(NamedTuple):
    run: PlannedRun
    popen: subprocess.Popen[bytes]
    log: Path  # of this attempt
    began: float


def _begin(run: PlannedRun, status: State, logs: Path, command: Command) -> _Process:
    """Starts a run in a process group of its own, which Ctrl-C in the terminal does not reach."""
    target = logs / f"{run.directory.name}.log"
    # The config's number of threads, and this process's import path, which may have a user's verifiers.
    threads = dict.fromkeys(THREADS, str(run.config.threads or 1))
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    with os.fdopen(opened_in_place(target, os.O_WRONLY | os.O_TRUNC), "wb") as log:
        popen = subprocess.Popen(
            command(run, status is State.BEGUN),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **threads, "PYTHONPATH": path},
            start_new_session=True,
        )
    return _Process(run, popen, target, time.monotonic())


def _failure(process: _Process) -> Failure | None:
    """The failure of an ended process; None for a finished run."""
    code = process.popen.returncode
    if code == 0 and is_whole(process.run):
        return None
    lines = [line.strip() for line in process.log.read_text("utf-8", "replace").splitlines() if line.strip()]
    own_lines = [line for line in lines if line.startswith("tokenpo: ")]
    message = (own_lines or lines or [""])[-1].removeprefix("tokenpo: ")
    if code < 0:
        name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
        message = f"ended by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")
    elif code == 0:
        message = "ended without making all of its steps"
    return Failure(process.run, visible(message or f"ended with status {code}", limit=400), process.log)
