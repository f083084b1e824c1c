"""A view that watches a run from a test, and the JSON Lines that the run left."""

import json
from pathlib import Path

from tokenpo.train.run.step import View


class Watch(View):
    """Keeps the notes and lines of a run; ends it, unasked, while it shows the step `crash`."""

    def __init__(self, crash: int | None = None) -> None:
        self.crash, self.begun = crash, -1
        self.notes: list[str] = []
        self.lines: list[str] = []

    def start(self, about, directory, step, notes) -> None:
        self.begun, self.notes = step, list(notes)

    def say(self, text: str) -> None:
        self.lines.append(text)

    def step(self, metrics, total) -> None:
        if metrics["step"] == self.crash:
            raise RuntimeError("power cut")


def lines(run: Path, name: str = "metrics.jsonl") -> list[dict]:
    return [json.loads(line) for line in (run / name).read_text(encoding="utf-8").splitlines()]


def numbers(run: Path) -> list[dict]:
    """The metrics without their times."""
    return [{name: x for name, x in line.items() if not name.startswith("seconds")} for line in lines(run)]
