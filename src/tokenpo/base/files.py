"""Files on a disk that may fill up, written by processes that may be killed at any moment."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from .errors import TokenPOError


def expanded(path: str | Path) -> Path:
    """The path with the home directory for a leading ~, as a shell would write it.

    Raises:
        TokenPOError: the home of a user who is not known here.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise TokenPOError(f"{path} begins with the home of an unknown user: write the path in full") from error


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write; at the end it is brought to the disk and takes the name, after an error it is gone.

    Raises:
        OSError: the place cannot be written, or the disk is full; what was there before is untouched.
    """
    part = part_of(path)
    try:
        yield part
        sync(part)
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_directory(path: Path) -> Iterator[Path]:
    """An empty directory to fill; at the end it is brought to the disk and takes the name, after an error it is gone.

    The directory that had the name stands beside it, as `old_of(path)`, until the new one has it: at no moment is there
    neither. After an error it has its name again. Of several processes that write one place the last has it.

    Raises:
        OSError: the place cannot be written, or the disk is full; what was there before is whole.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{part_of(path).name}.", dir=path.parent))
    try:
        work = scratch / part_of(path).name  # mkdtemp's own directory is closed to all but its owner
        work.mkdir()
        yield work
        for place in (*work.rglob("*"), work):
            sync(place)
        with _one_at_a_time(path.parent):
            _publish(work, path)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)  # on a full disk it is in the way
        raise
    with contextlib.suppress(OSError):
        scratch.rmdir()


def _publish(work: Path, path: Path) -> None:
    old, stood = old_of(path), _stands(path)
    if stood:
        remove_directory(old)
        path.rename(old)
    try:
        work.rename(path)
    except BaseException:
        if stood:
            with contextlib.suppress(OSError):  # it is whole under the other name too
                old.rename(path)
        raise
    sync(path.parent)
    with contextlib.suppress(OSError):  # the new one has its name: what is left is swept later
        remove_directory(old)


@contextlib.contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    import fcntl

    handle = os.open(directory, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems lock no directory
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def sweep(path: Path) -> None:
    """Removes what processes left that died while they wrote the directory `path`, unless it is all that there is."""
    left = list(path.parent.glob(f"{part_of(path).name}.*"))
    for place in (*left, *([old_of(path)] if _stands(path) else [])):
        with contextlib.suppress(OSError):
            remove_directory(place)


def remove_directory(path: Path) -> None:
    """Out of sight first: a process that dies while it deletes leaves no half directory under the name."""
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        gone = part_of(path.with_name(f"gone-{path.name}"))
        shutil.rmtree(gone, ignore_errors=True)
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def _stands(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def json_object(path: Path) -> dict[str, Any]:
    """The object of a JSON file; empty where there is none, or none that can be read."""
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def write_whole(path: Path, text: str) -> Path:
    """A text as a file that is whole or not there.

    Raises:
        OSError: as `whole`.
    """
    with whole(path) as part:
        # Half a character, quoted from somewhere, is its escape: JSON reads it as what it was.
        part.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    return path


def is_fresh(path: Path) -> bool:
    """Whether a directory holds nothing, or what a process leaves that died before it had written the config."""
    return {file.name for file in path.iterdir()} <= {".lock", part_of(path / "config.json").name}


def numbered(path: Path, mark: str = "-", first: int = 2) -> Iterator[Path]:
    """Names beside one that is taken: NAME-2, NAME-3, ..."""
    return (path.with_name(f"{path.name}{mark}{number}") for number in itertools.count(first))


def aside(path: Path) -> Path:
    """The next free name to move it to: NAME.1, NAME.2, ..."""
    return next(there for there in numbered(path, ".", 1) if not there.exists())


def fingerprint(files: Iterable[Path]) -> str:
    """Tells files apart from others, by their names and every byte, however large they are.

    Raises:
        OSError: one cannot be read.
    """
    told = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            told.update(f"{file.name} {hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
    return told.hexdigest()[:16]


def part_of(path: Path) -> Path:
    """Where a file is written before it gets its name: what a process that was killed may leave behind."""
    return path.with_name(f".writing-{path.name}")


def old_of(path: Path) -> Path:
    """Where a directory stands while another takes its name: a process that was killed may leave it there, whole."""
    return path.with_name(f".old-{path.name}")


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
        with contextlib.suppress(OSError):  # some network file systems have no locks
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError) as error:
                raise TokenPOError(busy) from error
        yield file
