"""Standard output and error: what is quoted from files is text and no command to the terminal, in any encoding; and the
work outlives its reader: `| head` goes early, `| tee` with the same Ctrl-C, a terminal that is closed with SIGHUP.
"""

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..base.errors import TokenPOError
from ..base.text import disarmed


class Outliving:
    """A text stream; what is written after its reader has gone is lost, and the writer goes on.

    Control characters are shown as escapes, except line breaks and tabs, and so is what its encoding lacks.

    Args:
        filtered: false leaves control characters as they are.

    Raises:
        TokenPOError: on writing, when the disk that it goes to is full.
    """

    def __init__(self, stream: Any, *, filtered: bool = True) -> None:
        self._stream, self._filtered = stream, filtered

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def unfiltered(self) -> "Outliving":
        """The same for a library that writes its own escapes."""
        return Outliving(self._stream, filtered=False)

    def write(self, text: str) -> int:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        shown = (disarmed(text) if self._filtered else text).encode(encoding, "backslashreplace").decode(encoding)
        self._heard(lambda: self._stream.write(shown))
        return len(text)

    def flush(self) -> None:
        self._heard(self._stream.flush)

    def _heard(self, call: Callable[[], object]) -> None:
        try:
            call()
        except OSError as error:
            # A terminal that is closed says no more that it is one.
            terminal = error.errno == errno.EIO and stat.S_ISCHR(os.fstat(self._stream.fileno()).st_mode)
            # What the stream still holds has to go somewhere: Python flushes it once more at its end.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
            if not (terminal or isinstance(error, BrokenPipeError)):
                raise TokenPOError(f"what is printed cannot be written: {error.strerror}") from error


@contextmanager
def outliving() -> Iterator[None]:
    """Within this context both standard streams outlive their readers."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = made = tuple(map(Outliving, before))
    try:
        yield
    finally:
        for stream in made:
            stream.flush()
        sys.stdout, sys.stderr = before
