"""The runs of a comparison: methods times seeds, each with its own directory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...base.errors import TokenPOError
from ...base.files import expanded
from ...core.objective import Objective
from ...recipe.command_line import SYNTAX, Entry, parse_entries
from ...recipe.config import Config, load_config
from ...recipe.files import find_recipe
from ...recipe.hosts import EMBEDDED, Host
from ...recipe.objective import accepted_here

EVALUATIONS = 10


@dataclass(frozen=True)
class PlannedRun:
    """One run: `arguments` are those of `tokenpo train`, `config` is what they come to; as verl does, a run that
    `goes_on` continues what its directory holds without being asked to.
    """

    label: str
    seed: int
    directory: Path
    config: Config
    arguments: tuple[str, ...]
    goes_on: bool = False

    @property
    def name(self) -> str:
        return f"{self.label} seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    """A whole comparison: `config` of its first run, `objectives` label to text; `runs` are all methods with the first
    seed, then all with the second, so that a machine that is slow for a while slows all.
    """

    recipe: str
    out: Path
    entries: tuple[Entry, ...]
    seeds: tuple[int, ...]
    config: Config
    objectives: dict[str, str]
    runs: tuple[PlannedRun, ...]
    notes: tuple[str, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(entry.label for entry in self.entries)

    def options(self, label: str) -> dict[str, object]:
        """The keywords that the method of this label is built with, those of the recipe included."""
        return next(run.config.method.options for run in self.runs if run.label == label)


def make_plan(
    recipe: str, methods: str, seeds: int, *, overrides: Sequence[str] = (), out: Path | None = None,
    host: Host = EMBEDDED, accepted: Callable[[Config], Objective] = accepted_here,
) -> Plan:  # fmt: skip
    """The runs of `recipe` with `methods` (see `parse_methods`) and as many `seeds`, from the recipe's own on.

    Every run gets one thread and ten evaluations, unless the overrides or, for evaluations, the recipe say otherwise;
    with TRL, which evaluates before and after, two. verl has no setting for threads, and validates greedily.

    Args:
        accepted: the objective of a recipe that the host can honour.

    Raises:
        TokenPOError: fewer than two methods or seeds, no evaluation, a setting that the comparison makes itself.
    """
    entries = parse_methods(methods)
    if seeds < 2:
        raise TokenPOError(f"--seeds {seeds} gives no pairs to compare: give at least 2, better 10")
    given = {override.partition("=")[0].strip() for override in overrides}
    for setting, instead in (("method.name", "--methods"), ("method", "--methods"), ("output.dir", "--out")):
        if setting in given:
            raise TokenPOError(f"--set {setting} differs between the runs of a comparison: use {instead}")
    base = load_config(find_recipe(recipe), overrides=overrides)
    if not base.evaluate.problems:
        raise TokenPOError(f"{recipe} has no held-out problems to compare by: set evaluate.problems above 0")
    usual = {"evaluate.every": base.evaluate.every or -(-base.train.steps // EVALUATIONS), **host.compared}
    settings = (*(f"{name}={value}" for name, value in usual.items() if name not in given), *overrides)
    out = expanded(out or Path("runs", f"compare-{base.name}"))
    numbers = tuple(range(base.seed, base.seed + seeds))
    runs = tuple(_run(recipe, entry, seed, settings, out, host) for seed in numbers for entry in entries)
    firsts = runs[: len(entries)]  # one of each method
    objectives: dict[str, str] = {}
    for run in firsts:
        text = str(accepted(run.config))
        if twin := next((label for label, other in objectives.items() if other == text), None):
            raise TokenPOError(f"--methods: {twin} and {run.label} are the same objective: leave one out")
        objectives[run.label] = text
    _check_directories(firsts)
    notes = tuple(_notes(firsts, entries, base))
    return Plan(recipe, out, tuple(entries), numbers, runs[0].config, objectives, runs, notes)


def parse_methods(text: str) -> list[Entry]:
    """The entries of `--methods`; raises TokenPOError for fewer than two."""
    entries = parse_entries(text)
    if len(entries) < 2:
        raise TokenPOError(f"--methods {text!r} holds nothing to compare with: name at least two; {SYNTAX}")
    if "all" in [entry.label for entry in entries]:
        raise TokenPOError("--methods: the label all is taken by --baseline all: choose another")
    return entries


def pairs(labels: Sequence[str], baseline: str) -> list[tuple[str, str]]:
    """(method, baseline) for every other method; with the baseline "all", every later method with every earlier one."""
    if baseline == "all":
        return [(b, a) for i, a in enumerate(labels) for b in labels[i + 1 :]]
    if baseline not in labels:
        raise TokenPOError(f"--baseline {baseline} is not among the methods: give one of {', '.join(labels)}, or all")
    return [(label, baseline) for label in labels if label != baseline]


def _run(recipe: str, entry: Entry, seed: int, settings: Sequence[str], out: Path, host: Host) -> PlannedRun:
    directory = out / f"{re.sub(r'[^A-Za-z0-9_.=+-]+', '-', entry.label)}-seed{seed}"
    overrides = [*settings, *(f"method.{key}={value}" for key, value in entry.options), f"seed={seed}"]
    config = load_config(find_recipe(recipe), method=entry.method, overrides=overrides, out=directory)
    words = [word for setting in overrides for word in ("--set", setting)]
    where = () if host is EMBEDDED else ("--engine", host.name)
    arguments = (recipe, "--method", entry.method, *where, *words, "--out", str(directory), "--no-report")
    return PlannedRun(entry.label, seed, directory, config, arguments, goes_on=host.goes_on)


def _check_directories(runs: Sequence[PlannedRun]) -> None:
    owners: dict[str, str] = {}
    for run in runs:
        name = run.directory.name.lower()  # as file systems that ignore case see it
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
