"""The record of a run that another framework drives, for `tokenpo report`: metrics, traces, what describes the run."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.files import aside, refuse_links
from ..base.jsonl import Lines, cut, whole_lines, with_step
from .directory import describe_foreign

LOGS = ("metrics.jsonl", "trace.jsonl")
# No more is moved aside: data and checkpoints in the directory may be of the new run.
OURS = (*LOGS, "config.json", "objective.txt", "versions.json", "rollouts", "report.html")


class ForeignRun:
    """Metrics and traces, a line of which names its step.

    Args:
        step: after which the run goes on, and its files are cut; 0 begins a run, and another's files are moved aside.
        config, objective, packages: as `describe_foreign` takes them.
    """

    def __init__(
        self, path: Path, step: int, config: Mapping[str, Any], objective: str, packages: Sequence[str]
    ) -> None:
        refuse_links(path)
        logs = [path / name for name in LOGS if (path / name).exists()]
        for file in logs if step else ():
            cut(file, _size_after(file, step))
        if logs and not step:
            older = aside(path)
            older.mkdir()
            for name in OURS:
                if (path / name).exists():
                    (path / name).rename(older / name)
        path.mkdir(parents=True, exist_ok=True)
        describe_foreign(path, config, objective, packages)
        self.path = path
        self.metrics, self.trace = (Lines(path / name) for name in LOGS)


def _size_after(path: Path, step: int) -> int:
    """Bytes up to the last whole line of a step, damaged lines before it included: the report leaves those out."""
    size, data = 0, path.read_bytes()
    for line in itertools.takewhile(lambda line: line.value["step"] <= step, whole_lines(path, with_step, [])):
        size = data.find(b"\n", line.offset) + 1 or size
    return size
