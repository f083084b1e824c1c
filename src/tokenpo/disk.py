"""Files on a disk that may fill up, written by processes that may be killed at any moment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from .errors import TokenPOError


def write_whole(path: Path, text: str) -> Path:
    """Writes a file whole or not at all, and brings it to the disk; what was there before stays until then.

    Raises:
        OSError: the place cannot be written, or the disk is full.
    """
    part = part_of(path)
    try:
        with part.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    return path


def part_of(path: Path) -> Path:
    """Where a file is written before it gets its name: what a process that was killed may leave behind."""
    return path.with_name(f".{path.name}.part")


def sync(path: Path) -> None:
    """Brings a file or the entries of a directory to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(path: Path, busy: str) -> Iterator[IO[str]]:
    """Holds a file for one process; the lock is the kernel's and ends with the process, however it ends.

    Raises:
        TokenPOError: another process holds it; its text is `busy`.
    """
    # Not on Windows, where the package is not supported but its core may be imported.
    import fcntl

    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise TokenPOError(busy) from error
        yield file
