"""All files are written by this module: whole or not at all, and never through a link.

The disk may fill up and the process may be killed at any moment.
"""

import contextlib
import errno
import glob
import hashlib
import itertools
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from .errors import TokenPOError

LARGEST = 2**26  # bytes of a JSON file; the largest tokenizers in use have half as many


def expanded(path: str | Path) -> Path:
    """The path with a leading ~ replaced by the home directory."""
    return Path(path).expanduser()


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A new file to write to: synced and renamed to `path` at the end, removed after an error.

    A link at `path` is replaced. Raises OSError if the path cannot be written; the old file is then untouched.
    """
    part = _fresh(path)
    try:
        part.touch(exist_ok=False)
        yield part
        sync(part)
        part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_directory(path: Path) -> Iterator[Path]:
    """An empty directory to fill: synced and renamed to `path` at the end, removed after an error.

    The old directory is kept as `old_of(path)` until the new one has the name, so one of them always exists.
    Raises OSError if the path cannot be written.
    """
    work = _fresh(path)
    work.mkdir(parents=True)
    try:
        yield work
        for place in (*work.rglob("*"), work):
            sync(place)
        if os.path.lexists(path):
            remove_directory(old_of(path))
            path.rename(old_of(path))
        work.rename(path)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)  # it would take space on a full disk
        raise
    sync(path.parent)
    with contextlib.suppress(OSError):  # the new one has its name; `sweep` removes the rest later
        remove_directory(old_of(path))


def sweep(path: Path) -> None:
    """Removes what dead processes left of writing the directory `path`; the old version only if the new exists."""
    for name in (path, old_of(path)):
        for place in path.parent.glob(f"{glob.escape(part_of(name).name)}.*"):
            shutil.rmtree(place, ignore_errors=True)
    if os.path.lexists(path):
        with contextlib.suppress(OSError):
            remove_directory(old_of(path))


def remove_directory(path: Path) -> None:
    """Removes a directory, renamed first: a process that dies meanwhile leaves no half directory under the name."""
    if path.is_symlink():
        path.unlink()
    elif path.exists():
        gone = _fresh(path)
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)


def read_text(path: Path) -> str:
    """The text of a file; raises OSError if it has more than `LARGEST` bytes, and ValueError if it is not UTF-8."""
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise OSError(errno.EFBIG, f"it has more than {LARGEST:,} bytes", str(path))
    return content.decode()


def json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no file, or no readable object in it."""
    try:
        content = json.loads(read_text(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def write_whole(path: Path, text: str) -> Path:
    """Writes a text as `whole` does."""
    with whole(path) as part:
        # Half of a surrogate pair is written as its escape, which JSON reads back.
        part.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    return path


def is_fresh(path: Path) -> bool:
    """Whether a directory is empty, apart from files of a process that died before it had written the config."""
    begun = f"{part_of(path / 'config.json').name}."
    return all(file.name == ".lock" or file.name.startswith(begun) for file in path.iterdir())


def numbered(path: Path, mark: str = "-", first: int = 2) -> Iterator[Path]:
    """Alternatives to a name that is taken: NAME-2, NAME-3, ..."""
    return (path.with_name(f"{path.name}{mark}{number}") for number in itertools.count(first))


def aside(path: Path) -> Path:
    """The first free name to move it to: NAME.1, NAME.2, ..."""
    return next(name for name in numbered(path, ".", 1) if not name.exists())


def fingerprint(files: Iterable[Path]) -> str:
    """A hash of the files' names and bytes; raises OSError if one cannot be read."""
    total = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            total.update(f"{file.name} {hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()[:16]


def part_of(path: Path) -> Path:
    """The path that is written before it is renamed to `path`."""
    return path.with_name(f".writing-{path.name}")


def _fresh(path: Path) -> Path:
    """Returns a random name next to `path`, where nobody can have put a link; a killed process may leave a file."""
    return path.with_name(f"{part_of(path).name}.{secrets.token_hex(4)}")


def old_of(path: Path) -> Path:
    """The path of the old directory while a new one takes its name; a killed process may leave it, whole."""
    return path.with_name(f".old-{path.name}")


def sync(path: Path) -> None:
    """Writes a file, or the entries of a directory, through to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def explained(sentence: Callable[[str], str], *more: type[Exception]) -> Iterator[None]:
    """Raises TokenPOError in place of an OSError, or of `more`; `sentence` turns the reason into its message."""
    try:
        yield
    except (OSError, *more) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        file = error.filename if isinstance(error, OSError) else None
        raise TokenPOError(sentence(f"{reason} ({file})" if file else reason)) from error


def making(directory: Path) -> AbstractContextManager[None]:
    """Raises TokenPOError if an output directory cannot be made."""
    return explained(lambda why: f"{directory} cannot be made: {why}; give another with --out")


def make_directory(directory: Path) -> Path:
    """Makes the directory of --out; raises TokenPOError if it cannot be made."""
    with making(directory):
        directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextlib.contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Locks a file for this process until the block ends; raises TokenPOError(busy) if another process holds it."""
    # Not on Windows, where the package is not supported but its core may be imported.
    import fcntl

    with os.fdopen(opened_in_place(path, os.O_RDWR), "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            raise TokenPOError(busy) from error
        except OSError:  # some network file systems have no locks
            pass
        yield


def opened_in_place(path: Path, flags: int) -> int:
    """A handle to write a file in place, made if it is missing; raises TokenPOError for a symbolic link."""
    if path.is_symlink():
        raise TokenPOError(f"{path} is a link, and is not written through: remove it, or copy the file there")
    return os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o666)
