"""The record of a run in another framework, for `tokenpo report`: metrics, traces and the run's settings."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...base.files import aside, refuse_links
from ...base.jsonl import Lines, cut, whole_lines, with_step
from .directory import describe_foreign
from .watch import Watch

logger = logging.getLogger(__name__)
LOGS = ("metrics.jsonl", "trace.jsonl")
# Only these are moved aside: data and checkpoints in the directory may belong to the new run.
OURS = (*LOGS, "config.json", "objective.txt", "versions.json", "rollouts", "report.html")


class ForeignRun:
    """Writes metrics and traces, whose lines have a step.

    Args:
        step: the step after which the run resumes; later lines are cut. 0: a fresh run; older files are moved aside.
        config, objective, packages: as in `describe_foreign`.
        rewarded: as in `Watch`.
    """

    def __init__(
        self, path: Path, step: int, config: Mapping[str, Any], objective: str, packages: Sequence[str], *,
        rewarded: bool = True,
    ) -> None:  # fmt: skip
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
        self._watch = Watch(step, rewarded=rewarded)

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Writes a line of metrics, and warns if it shows that the run learns nothing."""
        self.metrics.write(metrics)
        self.warn(self._watch(metrics))

    def warn(self, texts: Sequence[str] | None = None) -> None:
        """Logs these warnings; None repeats all, at the end of a run."""
        for text in self._watch.said if texts is None else texts:
            logger.warning(f"warning: {text}")


def _size_after(path: Path, step: int) -> int:
    """Bytes up to the last whole line of a step, with damaged lines before it, which the report skips."""
    size, data = 0, path.read_bytes()
    for line in itertools.takewhile(lambda line: line.value["step"] <= step, whole_lines(path, with_step, [])):
        size = data.find(b"\n", line.offset) + 1 or size
    return size
