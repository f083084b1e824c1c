"""The subject of a comparison: labels, methods, seeds and settings, of planned runs or of runs that exist."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...base.errors import TokenPOError
from ...base.text import flat
from ...recipe.hosts import EMBEDDED, HOSTS, VERL
from ...runs.read import Run, read_run
from .plan import Plan


@dataclass(frozen=True)
class Subject:
    """The runs of several methods as one thing.

    Args:
        name, place: what they were trained on, in a word, and where they lie, for messages.
        labels: the methods, in order; `methods` has their name and options, `objectives` their text.
        seeds, planned: ascending, of any method; how many runs there should be.
        config: the settings that all runs share.
        origin, origins: what made each run, a command or a directory, and the heading of these lines.
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


def of_plan(plan: Plan) -> Subject:
    """A recipe with several methods and seeds."""
    return Subject(
        plan.config.name, plan.out, plan.labels,
        methods={entry.label: (entry.method, plan.options(entry.label)) for entry in plan.entries},
        objectives=plan.objectives, seeds=plan.seeds, planned=len(plan.runs),
        config={"recipe": plan.recipe, **plan.config.model_dump(mode="json", exclude={"method", "seed", "output"})},
        origin="The command of every run",
        origins=tuple(shlex.join(["tokenpo", "train", *run.arguments]) for run in plan.runs), notes=plan.notes,
    )  # fmt: skip


# The settings that tell runs of one method apart; the sections of a foreign engine also hold paths.
SECTIONS = ("model", "task", "rollout", "train", "evaluate")
MOST_SETTINGS = 5  # of a note


def read_existing(directories: Sequence[Path], exactly: Collection[str]) -> tuple[Subject, dict[str, dict[int, Run]]]:
    """The runs in the directories: their subject, and the runs by label and seed.

    A label is the method with its options, the engine where there are several, and the settings by which runs of it
    differ. A run that did not make all of its steps is left out, with a note. `exactly` are metrics of which every
    point is needed.

    Raises:
        TokenPOError: no run, one without method or seed, two of the same method and seed, or a single method.
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
    unfinished = [f"{run.label} did not make all of its steps, and is left out." for run in runs if not _whole(run)]
    name = str(shared.get("name") or shared.get("task.name") or "several tasks")
    subject = Subject(
        name, Path("--runs"), tuple(grouped), methods={label: _method(run) for label, run in firsts.items()},
        objectives={label: run.objective.strip() for label, run in firsts.items()},
        seeds=tuple(sorted({seed for by_seed in grouped.values() for seed in by_seed})), planned=len(runs),
        config={key: x for key, x in shared.items() if key.partition(".")[0] not in ("method", "seed", "output")},
        origin="The directory of every run",
        origins=tuple(f"{label} seed {seed}: {run.path}" for label, of in grouped.items() for seed, run in of.items()),
        notes=(*unfinished, *_unlike(firsts.values())),
    )  # fmt: skip
    return subject, grouped


def _whole(run: Run) -> bool:
    steps = (run.config.get("train") or {}).get("steps")
    return not isinstance(steps, int) or run.series("step")[-1][0] >= steps


def _method(run: Run) -> tuple[str, Mapping[str, Any]]:
    options = dict(run.config.get("method") or {})
    if not isinstance(name := options.pop("name", None), str):
        raise TokenPOError(f"{run.path} says no method in config.json: give run directories that tokenpo wrote")
    return name.rpartition(":")[2], options


def _seed(run: Run) -> int:
    foreign = (run.config.get(VERL.name) or {}).get("data") or {}  # verl's section for data
    seed = run.config.get("seed", foreign.get("seed"))
    if not isinstance(seed, int):
        raise TokenPOError(
            f"{run.path} says no seed in config.json, and runs are paired by their seeds: leave it out, or train it "
            "again with one"
        )
    return seed


def _labels(runs: Sequence[Run]) -> Iterator[str]:
    """One for each run."""
    engines, settings, names = [], [_settings(run) for run in runs], []
    for run in runs:
        # A recipe has sections for other engines too; a config that is no recipe has that of its own.
        own = (name for name in HOSTS if run.config.get(name) and "rollout" not in run.config)
        engines.append(run.config.get("engine") or next(own, EMBEDDED.name))
    for run, engine in zip(runs, engines, strict=True):
        name, options = _method(run)
        written = ",".join(f"{key}={value}" for key, value in options.items())
        names.append((f"{name}:{written}" if written else name) + (f" ({engine})" if len({*engines}) > 1 else ""))
    for own, name in zip(settings, names, strict=True):
        alike = [other for other, its_name in zip(settings, names, strict=True) if its_name == name]
        varying = [key for key, value in own.items() if any(other.get(key) != value for other in alike)]
        yield ", ".join([name, *(f"{key}={own[key]}" for key in varying)])


def _settings(run: Run) -> dict[str, Any]:
    return flat({key: run.config.get(key) for key in SECTIONS})


def _unlike(firsts: Collection[Run]) -> Iterator[str]:
    """Settings in which the methods differ, as the difference between them is then not the method's alone."""
    settings = [_settings(run) for run in firsts]
    keys = dict.fromkeys(key for of in settings for key in of)
    if odd := [key for key in keys if len({repr(of.get(key)) for of in settings}) > 1]:
        more = f" and {len(odd) - MOST_SETTINGS} more" if len(odd) > MOST_SETTINGS else ""
        yield f"The methods were not trained alike: they differ in {', '.join(odd[:MOST_SETTINGS])}{more}."
