"""Ctrl-C as a request: the run saves where it stands and ends. A second one ends it at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """Within this context SIGINT and SIGTERM set `asked`; outside the main thread it changes nothing."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._ask) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore()
        # Straight to the descriptor: a signal may come in the middle of a buffered write, which can't be entered twice.
        with contextlib.suppress(OSError):  # Ctrl-C may have ended who reads it, as in `2>&1 | tee log`
            os.write(2, b"\ninterrupted: will save where the run stands (once more ends it at once, without saving)\n")

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
