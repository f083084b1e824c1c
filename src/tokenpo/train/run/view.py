"""Protocol for the progress output of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ..recipe.config import Config


class View(Protocol):
    """Called by the loop. `about`: lines on model, task and objective; `metrics`: a line of metrics.jsonl."""

    def start(self, about: Sequence[str], directory: Path, step: int, notes: Sequence[str]) -> None: ...

    def say(self, text: str) -> None: ...

    def step(self, metrics: Mapping[str, float], total: int) -> None: ...

    def stop(self) -> None: ...


def about(config: Config, model: str, objective: str) -> list[str]:
    """Lines on model, task and objective."""
    updates = config.train.epochs * config.train.minibatches
    return [
        f"model {config.model.path}{model}",
        f"task {config.task.name}, {config.train.steps} steps of {config.rollout.prompts} prompts x "
        f"{config.rollout.group_size} responses and {updates} update{'s' if updates > 1 else ''}, seed {config.seed}",
        objective,
    ]


def introduction(about: Sequence[str], directory: Path, step: int, notes: Sequence[str]) -> list[str]:
    """The first lines of a run: directory, model, task, objective, warnings."""
    return [
        f"{'resuming' if step else 'run'} {directory}{f' after step {step}' if step else ''}",
        *about,
        *(f"warning: {note}" for note in notes),
    ]
