"""Runs that exist, grouped under the labels that the user gives: `LABEL=PATTERN`."""

from __future__ import annotations

import glob
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.errors import TokenPOError
from ...base.files import expanded
from ...base.text import flat
from ...records.run import Run, read_run
from .plan import Subject

FORM = "write LABEL='PATTERN' twice or more, e.g. dapo='runs/dapo-*' hapo='runs/hapo-*'"
# Settings that name a run or its method; runs may differ in them.
NAMES = ("name", "seed", "method", "output", "verl.algorithm.tokenpo.method", "verl.algorithm.tokenpo.options")
# Settings that all runs of a label should share; other hosts' settings have names and places among them.
SHARED = ("model", "task", "rollout", "train", "teacher", "critic", "evaluate")
MOST_SETTINGS = 5  # settings named in a note

Grouped = Mapping[str, Mapping[int, Run]]  # label -> seed -> run


def read_existing(given: Sequence[str], exactly: Collection[str]) -> tuple[Subject, Grouped]:
    """Reads the runs of each `LABEL=PATTERN`: their subject, and label -> seed -> run.

    Leaves out unfinished runs, with a note. Reads metrics in `exactly` without thinning.

    Raises:
        TokenPOError: another form, a pattern without a match, a run without a seed or under two labels, two runs of one
            label and seed, or fewer than two labels.
    """
    grouped, unfinished = _grouped(given, exactly)
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
        origin="The directory of every run",
        origins=tuple(f"{label} seed {seed}: {run.path}" for label, seed, run in runs),
        notes=(*unfinished, *_unpaired(grouped), *_mixed(grouped), *_unlike(settings)),
    )  # fmt: skip
    return subject, grouped


def _grouped(given: Sequence[str], exactly: Collection[str]) -> tuple[Grouped, list[str]]:
    """The finished runs by label and seed, and a note on each unfinished one."""
    grouped: dict[str, dict[int, Run]] = {}
    unfinished, labels = [], {}
    for text in given:
        label, paths = _matched(text)
        for path in paths:
            if (other := labels.setdefault(path.resolve(), label)) != label:
                raise TokenPOError(f"--runs: {path} is both {other} and {label}: give patterns that share no run")
            run = read_run(path, exactly)
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
    if label == "all":
        raise TokenPOError("--runs: the label all is taken by --baseline all: choose another")
    # Path.glob refuses absolute patterns.
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
