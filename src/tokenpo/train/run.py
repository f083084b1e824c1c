"""The run directory: what a run is (written once), what it did (appended), and where it can go on.

recipe.toml config.json objective.txt versions.json     the run
metrics.jsonl samples.jsonl trace.jsonl                  one line a step, a sampled response, a traced response
checkpoints/ model/ report.html                          where to resume, the final model, the report
trackers.json                                            how far each live tracker is, where the recipe names one
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import TokenPOError
from ..jsonl import Lines, cut
from ..versions import versions
from . import checkpoint
from .checkpoint import Progress
from .config import Config, differences, parse_config
from .recipe import to_toml
from .trackers import Trackers

# What may change when a run is resumed: it neither alters the steps made nor those to come.
FREE = ("train.steps", "output.")


class Run:
    """An open run directory."""

    def __init__(self, path: Path, config: Config, trackers: Trackers) -> None:
        self.path = path
        self.keep = config.output.keep
        self.metrics = Lines(path / "metrics.jsonl")
        self.samples = Lines(path / "samples.jsonl")
        self.trace = Lines(path / "trace.jsonl")
        self._trackers = trackers

    def log(self, metrics: Mapping[str, float]) -> None:
        self.metrics.write(metrics)
        self._trackers.send(metrics)

    def sizes(self) -> dict[str, int]:
        return {lines.path.name: lines.sync() for lines in (self.metrics, self.samples, self.trace)}

    def evaluations(self) -> list[dict[str, float]]:
        """The lines of metrics with an evaluation, the first from before the training."""
        lines = map(json.loads, self.metrics.path.read_text(encoding="utf-8").splitlines())
        return [line for line in lines if "eval/accuracy" in line]

    def close(self) -> None:
        for lines in (self.metrics, self.samples, self.trace):
            lines.close()
        self._trackers.close()


def new_directory(config: Config) -> Path:
    """Makes the directory of a fresh run. One that was asked for must be empty; else the next free name is taken.

    Raises:
        TokenPOError: the directory asked for holds something.
    """
    path = config.directory()
    if config.output.dir is None:
        base, number = path, 2
        while path.exists():
            path, number = base.with_name(f"{base.name}-{number}"), number + 1
    elif path.is_file():
        raise TokenPOError(f"{path} is a file: give a directory with --out")
    elif path.exists() and any(path.iterdir()):
        raise TokenPOError(f"{path} is not empty: resume it with --resume {path}, or give another directory with --out")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TokenPOError(
            f"the run directory {path} cannot be made: {error.strerror}; give another with --out"
        ) from error
    return path


def describe(path: Path, config: Config, objective: str) -> None:
    """Writes the files that say what the run is."""
    (path / "config.json").write_text(json.dumps(config.model_dump(), indent=2) + "\n", encoding="utf-8")
    (path / "recipe.toml").write_text(to_toml(config), encoding="utf-8")
    (path / "objective.txt").write_text(objective + "\n", encoding="utf-8")
    (path / "versions.json").write_text(json.dumps(versions(), indent=2) + "\n", encoding="utf-8")


def resumed_config(path: Path, wanted: Config | None) -> Config:
    """The config of the run at `path`, or `wanted` where it is the same run.

    Raises:
        TokenPOError: no run there, or `wanted` differs in what its steps depend on; the message shows the difference.
    """
    file = path / "config.json"
    if not file.is_file():
        raise TokenPOError(f"{path} holds no config.json: give the directory of a run, as tokenpo train printed it")
    old = parse_config(json.loads(file.read_text(encoding="utf-8")), str(file))
    if wanted is None:
        return old
    changed = [line for line in differences(old, wanted) if not line.startswith(FREE)]
    if changed:
        raise TokenPOError(
            f"{path} cannot be resumed with another config ({'; '.join(changed)}): leave these settings as they were, "
            "or start a new run with --out"
        )
    return wanted


def open_checkpoint(path: Path, model: Any, optimizer: Any) -> tuple[Progress, list[str]]:
    """Restores the newest good checkpoint and cuts the logs back to it; what the user should know of it."""
    newest, damaged = checkpoint.newest(path)
    progress = checkpoint.restore(newest, model, optimizer)
    for name, size in progress.sizes.items():
        cut(path / name, size)
    notes = [f"checkpoint {bad.name} is damaged, so the one before it is used" for bad in damaged]
    before = json.loads((path / "versions.json").read_text(encoding="utf-8"))
    now = versions()
    changed = [f"{key} {before.get(key)} -> {now[key]}" for key in now if before.get(key) != now[key]]
    if changed:
        notes.append(f"not the software that began this run, so it may go on differently: {', '.join(changed)}")
    return progress, notes
