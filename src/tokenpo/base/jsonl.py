"""JSON lines: appended one whole line at a time, cut back to the size at a checkpoint, and read leniently."""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic_core import from_json

from .files import explained, opened_in_place


class Lines:
    """One JSON Lines file; NaN and infinities are written as null, and only the last line can be cut off by a kill."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.fdopen(opened_in_place(path, os.O_WRONLY | os.O_APPEND), "ab")

    def write(self, record: Mapping[str, Any]) -> None:
        """Appends a line; raises OSError if the disk is full."""
        # Half a surrogate pair cannot be encoded, but its escape is valid inside a JSON string.
        line = json.dumps(finite(record), ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        self._file.write(line)
        self._file.flush()

    def sync(self) -> int:
        """Syncs the file; returns its size in bytes."""
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self._file.close()


def cut(path: Path, size: int) -> str:
    """Cuts a file back to its size at a checkpoint, a shorter one to its last whole line; the latter gives a note."""
    now = path.stat().st_size if path.exists() else 0
    end = size if now >= size else path.read_bytes().rfind(b"\n") + 1 if now else 0
    if now > end:
        with os.fdopen(opened_in_place(path, os.O_WRONLY), "wb") as file:
            file.truncate(end)
    return f"{path.name} has {now} bytes, {size} at the checkpoint" if now < size else ""


class Line(NamedTuple):
    """A whole line: its number from 1, its first byte in the file, and its parsed value."""

    number: int
    offset: int
    value: Any


def whole_lines(path: Path, parse: Callable[[Any], Any], notes: list[str]) -> Iterator[Line]:
    """Every line that `parse` accepts; one note sums up the lines that are no JSON or raise ValueError."""
    broken: list[str] = []
    count = offset = 0
    for number, line in enumerate(byte_lines(path), start=1):
        try:
            if not line.isspace():
                yield Line(number, offset, parse(parsed(line)))
        except (ValueError, RecursionError) as error:
            count += 1
            cut = "" if line.endswith(b"\n") else ", cut off while it was being written"
            reason = str(error) if type(error) is ValueError else "not valid JSON"
            if count <= 3:
                broken.append(f"line {number}: {reason}{cut}")
        offset += len(line)
    if count:
        more = f"; and {count - 3} more" if count > 3 else ""
        what = "1 line was" if count == 1 else f"{count} lines were"
        notes.append(f"{path.name}: {what} left out ({'; '.join(broken)}{more}).")


def byte_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file with their ends; TokenPOError if it cannot be read."""
    with explained(lambda why: f"{path} cannot be read: {why}"), path.open("rb") as file:
        yield from file


def parsed(line: bytes) -> Any:
    """`json.loads(line)` in a quarter of the time."""
    try:
        return from_json(line)
    except ValueError:  # also raised for half a surrogate pair, which `Lines` may have written
        return json.loads(line)


def with_step(value: Any) -> dict[str, Any]:
    """For `whole_lines`: a line of a metrics log; raises ValueError unless it is an object with a step."""
    if not isinstance(value, dict) or not isinstance(value.get("step"), int):
        raise ValueError("not an object with a step")
    return value


def finite(value: Any, other: Callable[[float], Any] = lambda x: None) -> Any:
    """The value with None, or `other(x)`, in place of every float x that is not finite, which JSON cannot hold."""
    if isinstance(value, float):
        return value if math.isfinite(value) else other(value)
    if isinstance(value, Mapping):
        return {key: finite(item, other) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item, other) for item in value]
    return value
