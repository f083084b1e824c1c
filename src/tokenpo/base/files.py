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
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

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
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
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
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{part_of(path).name}.", dir=path.parent))
    try:
        work = scratch / part_of(path).name  # mkdtemp's own directory is closed to all but its owner
        work.mkdir()
        yield work
        for place in (*work.rglob("*"), work):
            sync(place)
        _publish(work, path)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)  # it would take space on a full disk
        raise
    with contextlib.suppress(OSError):
        scratch.rmdir()


def _publish(work: Path, path: Path) -> None:
    old, existed = old_of(path), os.path.lexists(path)
    if existed:
        remove_directory(old)
        path.rename(old)
    try:
        work.rename(path)
    except BaseException:
        if existed:
            with contextlib.suppress(OSError):  # it is still whole under the other name
                old.rename(path)
        raise
    sync(path.parent)
    with contextlib.suppress(OSError):  # the new one has its name; `sweep` removes the rest later
        remove_directory(old)


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


def opened(path: Path, largest: int | None = None) -> BufferedReader:
    """A file to read; raises OSError if it is unreadable, a pipe or a device, or has more than `largest` bytes."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait for a writer
    state = os.fstat(handle)
    plain = stat.S_ISREG(state.st_mode)
    if plain and (largest is None or state.st_size <= largest):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if plain:
        raise OSError(errno.EFBIG, f"it has {state.st_size:,} bytes, of which {largest:,} are the most", str(path))
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def read_text(path: Path, largest: int = LARGEST) -> str:
    """The text of a file; raises OSError as `opened`, and ValueError if it is not UTF-8."""
    with opened(path, largest) as file:
        return file.read(largest + 1).decode()


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
        with opened(file) as stream:
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
    except BrokenPipeError:  # not the disk: the reader of our output has gone
        raise
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


def lock_file(directory: Path) -> Path:
    """The lock file of --out, made with its directory; TokenPOError if it cannot be made."""
    with making(directory):
        directory.mkdir(parents=True, exist_ok=True)
        os.close(opened_in_place(directory / ".lock", os.O_RDWR))
    return directory / ".lock"


@contextlib.contextmanager
def locked(path: Path, busy: str) -> Iterator[IO[str]]:
    """Locks a file for this process until the block ends; raises TokenPOError(busy) if another process holds it."""
    with os.fdopen(opened_in_place(path, os.O_RDWR), "w") as file:
        if not _lock(file.fileno()):
            raise TokenPOError(busy)
        yield file


def _lock(handle: int) -> bool:
    """Takes the lock; False if another process holds it. Some network file systems have no locks: then True."""
    # Not on Windows, where the package is not supported but its core may be imported.
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:
        pass
    return True


def opened_in_place(path: Path, flags: int) -> int:
    """A handle to write a file in place, made if it is missing; raises TokenPOError for a link."""
    refusal = TokenPOError(f"{path} is a link or no regular file, and is not written through: remove it, or copy it")
    if path.is_symlink():
        raise refusal
    handle = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(handle)
        raise refusal
    return handle
