"""Append-only JSON lines, one flushed line a step, and TensorBoard as an option.

The byte sizes of these files belong to a checkpoint: a resumed run cuts them back to it, so no line is lost or doubled.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import TokenPOError, Unsupported


class Lines:
    """One JSON Lines file; NaN and infinities are written as null."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a", encoding="utf-8")

    def write(self, record: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(_finite(record), ensure_ascii=False) + "\n")
        self._file.flush()

    def sync(self) -> int:
        """Brings the file to the disk; its size in bytes."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self.path.stat().st_size

    def close(self) -> None:
        self._file.close()


def cut(path: Path, size: int) -> None:
    """Drops what was written behind a checkpoint.

    Raises:
        TokenPOError: the file is shorter than at the checkpoint, so lines were lost.
    """
    there = path.stat().st_size if path.exists() else 0
    if there < size:
        raise TokenPOError(f"{path} has {there} bytes, {size} at the checkpoint: the run directory was changed since")
    if there > size:
        os.truncate(path, size)


class TensorBoard:
    """Scalars of each step as an event file in RUN/tensorboard."""

    def __init__(self, directory: Path, purge_step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise Unsupported("output.tensorboard needs a package: pip install tokenpo[track]") from error
        self._writer = SummaryWriter(str(directory / "tensorboard"), purge_step=purge_step)

    def write(self, record: Mapping[str, float]) -> None:
        for name, value in record.items():
            if name != "step":
                self._writer.add_scalar(name, value, int(record["step"]))

    def close(self) -> None:
        self._writer.close()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
