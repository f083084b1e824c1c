"""What a run tells while it trains, whoever shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class View(Protocol):
    """Shown by a loop; the metrics are the lines of metrics.jsonl."""

    def start(self, lines: Sequence[str]) -> None: ...

    def say(self, text: str) -> None: ...

    def step(self, metrics: Mapping[str, float], total: int) -> None: ...

    def stop(self) -> None: ...
