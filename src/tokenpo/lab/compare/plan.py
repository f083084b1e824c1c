"""The runs of a comparison: planned ones, methods times seeds, each with its directory, or existing ones."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import TokenPOError
from ...base.files import expanded
from ...base.text import flat
from ...core.objective import Objective
from ...records.run import Run, read_run
from ...train.recipe.command_line import SYNTAX, Entry, parse_entries, short
from ...train.recipe.config import Config, load_config
from ...train.recipe.engines import EMBEDDED, ENGINES
from ...train.recipe.files import find_recipe
from ...train.recipe.objective import accepted_here

EVALUATIONS = 10
# Sections whose settings distinguish runs of one method.
SECTIONS = ("model", "task", "rollout", "train", "teacher", "critic", "evaluate")
FOREIGN = ("trl", "verl")  # a foreign engine's own settings, which differ between its versions
OURS = ("verl", "algorithm", "tokenpo")  # our settings among verl's
# Words in the names of foreign settings that only name a run or a place, and TRL's fields that choose the method.
NAMING = {
    "seed", "name", "dir", "path", "file", "files", "resume", "report", "project", "hub", "port", "method", "trace",
}  # fmt: skip
CHOOSING = {"loss_type", "importance_sampling_level", "scale_rewards", "epsilon", "epsilon_high", "delta"}
MOST_SETTINGS = 5  # settings named in a note


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
    """The compared runs of several methods.

    Args:
        name: the task or recipe, in a word.
        place: their directory, for messages.
        labels: the methods, in order.
        methods: label -> (name, options).
        objectives: label -> the objective's text.
        seeds: all seeds of any method, ascending.
        planned: the number of planned runs.
        config: the settings that all runs share.
        origin, origins: the heading, and one line for each run: its command or its directory.
    """

    name: str
    place: Path
    labels: tuple[str, ...]
    methods: Mapping[str, tuple[str, Mapping[str, Any]]]
    objectives: Mapping[str, str]
    seeds: tuple[int, ...]
    planned: int
    config: Mapping[str, Any]
    origin: str
    origins: tuple[str, ...]
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


def make_plan(
    recipe: str, methods: str, seeds: int, *, overrides: Sequence[str] = (), out: Path | None = None,
    engine: str = EMBEDDED, accepted: Callable[[Config], Objective] = accepted_here,
) -> Plan:  # fmt: skip
    """The runs of `recipe` with `methods` (see `parse_methods`) and `seeds` seeds, beginning with the recipe's own.

    By default every run has one thread and ten evaluations. Overrides change both, the recipe only the evaluations.

    Args:
        accepted: returns the objective of a recipe, or raises if the engine cannot train it.

    Raises:
        TokenPOError: fewer than two methods or seeds, no evaluation, or a setting that the comparison sets itself.
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
    runs = tuple(_run(recipe, entry, seed, settings, out, engine) for seed in numbers for entry in entries)
    firsts = runs[: len(entries)]  # one of each method
    objectives: dict[str, str] = {}
    for run in firsts:
        text = str(accepted(run.config))
        if twin := next((label for label, other in objectives.items() if other == text), None):
            raise TokenPOError(f"--methods: {twin} and {run.label} are the same objective: leave one out")
        objectives[run.label] = text
    _check_directories(firsts)
    shared = firsts[0].config.model_dump(mode="json", exclude={"method", "seed", "output"})
    return Plan(
        Subject(
            firsts[0].config.name, out, tuple(objectives), objectives=objectives, seeds=numbers, planned=len(runs),
            methods={run.label: (e.method, run.config.method.options) for e, run in zip(entries, firsts, strict=True)},
            config={"recipe": recipe, **shared}, origin="The command of every run",
            origins=tuple(shlex.join(["tokenpo", "train", *run.arguments]) for run in runs),
            notes=tuple(_notes(firsts, entries, base)),
        ),
        runs,
    )  # fmt: skip


def parse_methods(text: str) -> list[Entry]:
    """The entries of `--methods`; raises TokenPOError for fewer than two."""
    entries = parse_entries(text)
    if len(entries) < 2:
        raise TokenPOError(f"--methods {text!r} holds nothing to compare with: name at least two; {SYNTAX}")
    if "all" in [entry.label for entry in entries]:
        raise TokenPOError("--methods: the label all is taken by --baseline all: choose another")
    return entries


def pairs(labels: Sequence[str], baseline: str) -> list[tuple[str, str]]:
    """(method, baseline) for every other method; with baseline "all", every later method with every earlier one."""
    if baseline == "all":
        return [(b, a) for i, a in enumerate(labels) for b in labels[i + 1 :]]
    if baseline not in labels:
        raise TokenPOError(f"--baseline {baseline} is not among the methods: give one of {', '.join(labels)}, or all")
    return [(label, baseline) for label in labels if label != baseline]


def _run(recipe: str, entry: Entry, seed: int, settings: Sequence[str], out: Path, engine: str) -> PlannedRun:
    directory = out / f"{re.sub(r'[^A-Za-z0-9_.=+-]+', '-', entry.label)}-seed{seed}"
    overrides = [*settings, *(f"method.{key}={value}" for key, value in entry.options), f"seed={seed}"]
    config = load_config(find_recipe(recipe), method=entry.method, overrides=overrides, out=directory)
    words = [word for setting in overrides for word in ("--set", setting)]
    where = () if engine == EMBEDDED else ("--engine", engine)
    arguments = (recipe, "--method", entry.method, *where, *words, "--out", str(directory), "--no-report")
    return PlannedRun(entry.label, seed, directory, config, arguments)


def _check_directories(runs: Sequence[PlannedRun]) -> None:
    owners: dict[str, str] = {}
    for run in runs:
        name = run.directory.name.lower()  # some file systems ignore case
        if name in owners:
            raise TokenPOError(
                f"--methods: {owners[name]} and {run.label} would share the directory {run.directory}: tell them apart "
                "as LABEL@METHOD:KEY=VALUE"
            )
        if len(name) > 120:
            raise TokenPOError(f"--methods: {run.label} is too long for a directory: give a shorter name with LABEL@")
        owners[name] = run.label


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


def read_existing(directories: Sequence[Path], exactly: Collection[str]) -> tuple[Subject, dict[str, dict[int, Run]]]:
    """The runs in the directories: their subject, and label -> seed -> run.

    A label is the method with its options, the engine if there are several, and the settings in which runs of the
    method differ. An unfinished run is left out, with a note. Metrics in `exactly` are read without thinning.

    Raises:
        TokenPOError: no run, a run without method or seed, two runs of one method and seed, or a single method.
    """
    runs = [read_run(directory, exactly) for directory in directories]
    whole = [run for run in runs if _whole(run)]
    grouped: dict[str, dict[int, Run]] = {}
    for label, run in zip(_labels(whole), whole, strict=True):
        first = grouped.setdefault(label, {}).setdefault(seed := _seed(run), run)
        if first is not run:
            raise TokenPOError(f"{first.path} and {run.path} are both {label} with seed {seed}: leave one out")
    if len(grouped) < 2:
        raise TokenPOError(f"--runs holds nothing to compare with: all are {', '.join(grouped) or 'unfinished'}")
    firsts = {label: next(iter(by_seed.values())) for label, by_seed in grouped.items()}
    first, *rest = (flat(run.config) for run in whole)
    shared = {key: x for key, x in first.items() if all(key in of and of[key] == x for of in rest)}
    notes = [f"{run.label} did not make all of its steps, and is left out." for run in runs if not _whole(run)]
    if unknown := sum(_steps(run) is None for run in whole):
        notes.append(f"{unknown} of {len(whole)} runs say no number of steps in config.json, and count as finished.")
    tasks = "several tasks" if any("task.name" in of for of in (first, *rest)) else "an unnamed task"
    name = str(shared.get("name") or shared.get("task.name") or tasks)
    subject = Subject(
        name, Path("--runs"), tuple(grouped), methods={label: _method(run) for label, run in firsts.items()},
        objectives={label: run.objective.strip() for label, run in firsts.items()},
        seeds=tuple(sorted({seed for by_seed in grouped.values() for seed in by_seed})), planned=len(runs),
        config={key: x for key, x in shared.items() if key.partition(".")[0] not in ("method", "seed", "output")},
        origin="The directory of every run",
        origins=tuple(f"{label} seed {seed}: {run.path}" for label, of in grouped.items() for seed, run in of.items()),
        notes=(*notes, *_unlike(firsts.values())),
    )  # fmt: skip
    return subject, grouped


def _section(run: Run, *names: str) -> Mapping[str, Any]:
    """A section of config.json, which may be anyone's; empty if there is none."""
    value: Any = run.config
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _steps(run: Run) -> int | None:
    return steps if isinstance(steps := _section(run, "train").get("steps"), int) else None


def _whole(run: Run) -> bool:
    steps = _steps(run)
    return steps is None or run.series("step")[-1][0] >= steps


def _method(run: Run) -> tuple[str, Mapping[str, Any]]:
    given = run.config.get("method")
    options = {**_section(run, *OURS, "options"), **_section(run, "method")}
    options |= {"name": given} if isinstance(given, str) else {}
    if not isinstance(name := options.pop("name", None), str):
        raise TokenPOError(f"{run.path} says no method in config.json: give run directories that tokenpo wrote")
    return name, options


def _seed(run: Run) -> int:
    seed = run.config.get("seed", _section(run, "verl", "data").get("seed"))
    if not isinstance(seed, int):
        raise TokenPOError(
            f"{run.path} says no seed in config.json, and runs are paired by their seeds: leave it out, or train it "
            "again with one"
        )
    return seed


def _labels(runs: Sequence[Run]) -> Iterator[str]:
    """The label of each run."""
    engines, settings, names = [], [_settings(run) for run in runs], []
    for run in runs:
        # Another host's config has its settings in a section of its name; a recipe has a section for Tinker.
        own = (name for name in (*FOREIGN, *ENGINES) if run.config.get(name) and "rollout" not in run.config)
        engines.append(run.config.get("engine") or next(own, EMBEDDED))
    for run, engine in zip(runs, engines, strict=True):
        name, options = _method(run)
        name = short(name) if {other.objective for other in runs if _twins(run, other)} <= {run.objective} else name
        written = ",".join(f"{key}={value}" for key, value in options.items())
        names.append((f"{name}:{written}" if written else name) + (f" ({engine})" if len({*engines}) > 1 else ""))
    for own, name in zip(settings, names, strict=True):
        same_name = [other for other, its_name in zip(settings, names, strict=True) if its_name == name]
        varying = [key for key in own if _varies(key, same_name)]
        yield ", ".join([name, *(f"{key}={own[key]}" for key in varying)])


def _twins(run: Run, other: Run) -> bool:
    """Whether two runs have functions of one name, in two files, with the same options."""
    (name, options), (its_name, its_options) = _method(run), _method(other)
    return name != its_name and short(name) == short(its_name) and options == its_options


def _settings(run: Run) -> dict[str, Any]:
    foreign = flat({key: run.config.get(key) or {} for key in FOREIGN})
    told = {key: value for key, value in foreign.items() if not _names(key.rpartition(".")[2], value)}
    told = {key: value for key, value in told.items() if not key.startswith(".".join((*OURS, "options.")))}
    return flat({key: run.config.get(key) for key in SECTIONS}) | told


def _names(name: str, value: Any) -> bool:
    """Whether a foreign setting only names the run, a place or the method."""
    return bool(NAMING & {*name.split("_")}) or name in CHOOSING or "/" in str(value)


def _varies(key: str, settings: Collection[Mapping[str, Any]]) -> bool:
    """Whether the setting differs; an engine's own counts only among the runs that have it."""
    ours = key.partition(".")[0] in SECTIONS or key.startswith(".".join(OURS))
    known = [of.get(key) for of in settings if key in of or ours]
    return any(value != known[0] for value in known)


def _unlike(firsts: Collection[Run]) -> Iterator[str]:
    """A note on settings in which the methods' runs differ: then a difference may not be due to the method."""
    settings = [_settings(run) for run in firsts]
    keys = dict.fromkeys(key for of in settings for key in of)
    if odd := [key for key in keys if _varies(key, settings)]:
        more = f" and {len(odd) - MOST_SETTINGS} more" if len(odd) > MOST_SETTINGS else ""
        yield f"The methods were not trained alike: they differ in {', '.join(odd[:MOST_SETTINGS])}{more}."
