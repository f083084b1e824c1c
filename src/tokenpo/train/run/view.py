"""The progress output of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


class View:
    """Called by the loop; this one shows nothing."""

    def start(self, about: Sequence[str], directory: Path, step: int, notes: Sequence[str]) -> None:
        """Begins a run after `step`; `about` are lines on model, task and objective."""
        self.say(f"resuming {directory} after step {step}" if step else f"run {directory}")
        for line in (*about, *(f"warning: {note}" for note in notes)):
            self.say(line)

    def say(self, text: str) -> None: ...

    def step(self, metrics: Mapping[str, float], total: int) -> None:
        """Shows a line of metrics.jsonl."""

    def stop(self) -> None: ...
