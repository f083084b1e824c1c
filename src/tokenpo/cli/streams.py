"""Standard output and error that no quoted text controls and no reader that has gone stops; lists and progress bars."""

import errno
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..base.text import disarmed

UNSEEN = 10_000  # characters of a line, without a terminal
LEAST = 20  # characters of the last column, however narrow the terminal is


class Outliving:
    """A text stream; text written after its reader has gone (`| head`, a closed terminal) is lost, without an error.

    Control characters (if `filtered`) and characters that the encoding lacks are written as escapes.
    """

    def __init__(self, stream: Any, *, filtered: bool = True) -> None:
        self._stream, self._filtered = stream, filtered

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def unfiltered(self) -> "Outliving":
        """The same stream for a library that writes its own escape sequences."""
        return Outliving(self._stream, filtered=False)

    def write(self, text: str) -> int:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        shown = (disarmed(text) if self._filtered else text).encode(encoding, "backslashreplace").decode(encoding)
        with self._outlived():
            self._stream.write(shown)
        return len(text)

    def flush(self) -> None:
        with self._outlived():
            self._stream.flush()

    @contextmanager
    def _outlived(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            # Python flushes the stream's buffer once more when it ends, which must not fail.
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())


@contextmanager
def outliving() -> Iterator[None]:
    """Makes both standard streams outlive their readers; one that was closed before Python began writes nowhere."""
    before = sys.stdout, sys.stderr
    while (spare := os.open(os.devnull, os.O_RDWR)) < 3:  # a service manager may have closed some
        os.set_inheritable(spare, True)
    with os.fdopen(spare, "w", encoding="utf-8") as nowhere:
        sys.stdout, sys.stderr = made = Outliving(before[0] or nowhere), Outliving(before[1] or nowhere)
        try:
            yield
        finally:
            for stream in made:
                stream.flush()
            sys.stdout, sys.stderr = before


def print_list(rows: Sequence[Sequence[str]]) -> None:
    """Prints the rows in columns, the last one wrapped to the terminal (or COLUMNS); a row of one text is a heading."""
    wide = [max(map(len, column)) for column in zip(*(row for row in rows if len(row) > 1), strict=True)][:-1]
    seen = sys.stdout.isatty() or "COLUMNS" in os.environ
    width = shutil.get_terminal_size().columns - 1 if seen else UNSEEN
    for *cells, words in rows:
        begin = "".join(f"{cell:<{size}}  " for cell, size in zip(cells, wide, strict=bool(cells)))
        room, indent = max(width, len(begin) + LEAST), " " * len(begin)
        print(textwrap.fill(words, room, initial_indent=begin, subsequent_indent=indent, break_on_hyphens=False))


@contextmanager
def progress(count: int, what: str) -> Iterator[Callable[..., None]]:
    """Shows a progress bar on a terminal; yields a function of the number done and the name of the current one."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    from ..base.terminal import Console

    console = Console(sys.stderr)
    name = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, ratio=1))
    columns = (name, BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, expand=True, disable=hidden) as bar:
        job = bar.add_task(what, total=count)
        yield lambda done, now=what: bar.update(job, completed=done, description=now)
