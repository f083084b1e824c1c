"""The terminal: a console that escapes control sequences, and Ctrl-C as a request to save and end."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterable
from types import FrameType
from typing import Any

from rich import console
from rich.segment import Segment

from .text import disarmed


class Console(console.Console):
    """rich's console without markup and emoji."""

    def __init__(self, file: Any, **options: Any) -> None:
        # `cli.streams` escapes all other output; rich's own colours must bypass it.
        super().__init__(file=getattr(file, "unfiltered", file), markup=False, emoji=False, **options)

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        """rich's segments with escaped text, before its colours become escape sequences."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(disarmed(segment.text), segment.style)


ENDING = (signal.SIGINT, signal.SIGTERM)
# A closed shell sends SIGHUP and the kernel sends it again, so a second SIGHUP must not end the process.
SIGNALS = (*ENDING, signal.SIGHUP)


class Interrupt:
    """Within this context SIGINT, SIGTERM and SIGHUP set `asked`; outside the main thread it changes nothing."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupt":
        mine = threading.current_thread() is threading.main_thread()
        caught = [number for number in SIGNALS if mine and signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._ask) for number in caught}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore(SIGNALS)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            return
        self.asked = True
        self._restore(ENDING)
        # Written to the descriptor itself: a signal may interrupt a buffered write, which is not reentrant.
        with contextlib.suppress(OSError):  # Ctrl-C may have ended the reader too, as in `2>&1 | tee log`
            os.write(2, b"\ninterrupted: will save where the run stands (once more ends it at once, without saving)\n")

    def _restore(self, numbers: Iterable[signal.Signals]) -> None:
        for number in numbers:
            if number in self._before:
                signal.signal(number, self._before.pop(number))
