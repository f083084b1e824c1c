"""Waiting for what another process does in its own time, such as to die of a signal."""

import time
from collections.abc import Callable


def wait_for(happened: Callable[[], object], seconds: float = 120) -> None:
    """Returns once `happened()` is true; fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.05)
