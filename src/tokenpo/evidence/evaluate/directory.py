"""The directory of an evaluation, which an interrupted one goes on from; nothing else may be in it.

config.json     what the samples depend on: model, problems, sampling, versions; written first
samples.jsonl   every sample, written as they come
results.json    the config again, and the numbers
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ...base.errors import TokenPOError
from ...base.files import explained, is_fresh, locked, making, numbered, opened_in_place, refuse_links, write_whole
from ...base.jsonl import finite
from ...base.text import differences
from .summary import Summary

CONFIG, SAMPLES, RESULTS = "config.json", "samples.jsonl", "results.json"
Config = Mapping[str, Any]


def write_results(directory: Path, config: Config, summary: Summary) -> Path:
    """Writes results.json, whole or not at all; NaN as null.

    Raises:
        TokenPOError: the file cannot be written; what was there stays.
    """
    with _writing(directory):
        return write_whole(directory / RESULTS, _json(finite({"config": config, **dataclasses.asdict(summary)})))


def prepare(directory: Path, config: Config) -> None:
    """Makes the directory of an evaluation, or finds it made by the same one.

    Raises:
        TokenPOError: it holds anything else.
    """
    if not check(directory, config):
        with making(directory):
            directory.mkdir(parents=True, exist_ok=True)
            write_whole(directory / CONFIG, _json(config))


def check(directory: Path, config: Config) -> bool:
    """Whether the directory is of this very evaluation; False where nothing is there yet.

    Raises:
        TokenPOError: it holds anything else.
    """
    if directory.is_file():
        raise TokenPOError(f"{directory} is a file: give a directory with --out")
    changed = _changed(directory, config)
    if changed:
        raise TokenPOError(
            f"{directory} holds results of another evaluation ({'; '.join(changed)}): give another directory with --out"
        )
    if changed is None and directory.exists() and not is_fresh(directory):
        raise TokenPOError(f"{directory} is not empty and holds no evaluation: give another directory with --out")
    return changed is not None


def free_directory(name: str, config: Config, seed: int) -> Path:
    """The directory that this evaluation began in, or the next free name."""
    base = Path("runs", f"eval-{name}-seed{seed}")
    names = itertools.chain([base], numbered(base))
    return next(path for path in names if not path.exists() or is_fresh(path) or _changed(path, config) == [])


@contextlib.contextmanager
def reserved(directory: Path) -> Iterator[None]:
    """Lock the directory for this process; at the end, remove what was created if nothing was written.

    Raises:
        TokenPOError: it cannot be made or written, or another process holds it.
    """
    created = [path for path in (directory, *directory.parents) if not path.exists()]
    lock = directory / ".lock"
    creates_lock = not lock.exists()
    with making(directory):
        directory.mkdir(parents=True, exist_ok=True)
        refuse_links(directory)
        os.close(opened_in_place(lock, os.O_RDWR))
    busy = f"{directory} is being written by another evaluation: wait for it, or give another directory with --out"
    with _writing(directory), locked(lock, busy):
        try:
            yield
        finally:
            if is_fresh(directory):
                with contextlib.suppress(OSError):  # somebody else's by now: the first error is raised, not this
                    if creates_lock:
                        lock.unlink()
                    for path in created:
                        path.rmdir()


def _writing(directory: Path) -> AbstractContextManager[None]:
    remedy = "What was sampled is kept: make room, then give the same command again"
    return explained(lambda why: f"the evaluation {directory} cannot be written: {why}. {remedy}")


def _changed(directory: Path, config: Config) -> list[str] | None:
    """Differences from the config of the evaluation in the directory, versions apart; None where none is there."""
    file = directory / CONFIG
    if not file.is_file():
        return None
    try:
        changed = differences(json.loads(file.read_text(encoding="utf-8")), json.loads(_json(config)))
    except (ValueError, AttributeError) as error:
        raise TokenPOError(f"{file} is not the config of an evaluation: give another directory with --out") from error
    return [line for line in changed if not line.startswith("versions.")]


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n"
