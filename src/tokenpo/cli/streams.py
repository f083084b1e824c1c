"""Standard output and error for work that outlives its reader: `| head` goes early, `| tee` with the same Ctrl-C."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..base.errors import TokenPOError


class Outliving:
    """A text stream; what is written after its reader has gone is lost, and the writer goes on.

    Raises:
        TokenPOError: on writing, when the disk that it goes to is full.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._heard(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._heard(self._stream.flush)

    def _heard(self, call: Callable[[], object]) -> None:
        try:
            call()
        except BrokenPipeError:
            self._lose()
        except OSError as error:
            self._lose()

            raise TokenPOError(f"what is printed cannot be written: {error.strerror}") from error

    def _lose(self) -> None:
        # What the stream still holds has to go somewhere: Python flushes it once more at its end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)


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
