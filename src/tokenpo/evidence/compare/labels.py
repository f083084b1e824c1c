"""The subject of a comparison: labels, methods, seeds and settings, for planned runs and for runs that exist."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .plan import Plan


@dataclass(frozen=True)
class Subject:
    """The runs of several methods as one thing.

    Args:
        name: what they were trained on, in a word.
        place: where they lie, for messages.
        labels: the methods, in order; `methods` has their name and options, `objectives` their str(objective).
        seeds: ascending, of any method.
        planned: how many runs there should be.
        config: the settings that all runs share.
        origin, origins: what made each run, a command or a directory, and the heading of these lines.
        notes: what a reader should know beforehand.
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
        name=plan.config.name,
        place=plan.out,
        labels=plan.labels,
        methods={entry.label: (entry.method, plan.options(entry.label)) for entry in plan.entries},
        objectives=plan.objectives,
        seeds=plan.seeds,
        planned=len(plan.runs),
        config={"recipe": plan.recipe, **plan.config.model_dump(mode="json", exclude={"method", "seed", "output"})},
        origin="The command of every run",
        origins=tuple(shlex.join(["tokenpo", "train", *run.arguments]) for run in plan.runs),
        notes=plan.notes,
    )
