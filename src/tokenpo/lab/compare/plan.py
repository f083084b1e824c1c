"""The runs of a comparison: methods times seeds, each with its directory."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import TokenPOError
from ...base.files import expanded
from ...core.objective import Objective
from ...train.recipe.command_line import SYNTAX, Entry, parse_entries
from ...train.recipe.config import Config, load_config
from ...train.recipe.engines import EMBEDDED
from ...train.recipe.files import find_recipe
from ...train.recipe.objective import accepted_here

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
    """The compared runs of several methods.

    Args:
        name: the task or recipe, in a word.
        place: their directory, for messages.
        labels: the methods, in order.
        methods: label -> name and options, as in the section `method` of a config.
        objectives: label -> the objective's text.
        seeds: all seeds of any method, ascending.
        planned: the number of planned runs.
        config: the settings that all runs share.
        origin, origins: the heading, and one line for each run: its command or its directory.
    """

    name: str
    place: Path
    labels: tuple[str, ...]
    methods: Mapping[str, Mapping[str, Any]]
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
            methods={run.label: run.config.method.model_dump() for run in firsts},
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
