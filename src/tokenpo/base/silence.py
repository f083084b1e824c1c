"""Silences what native libraries print."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """Sends file descriptors 1 and 2 to nowhere while native code runs."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or None
            stream.flush()
    kept: list[tuple[int, int]] = []
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for place in (1, 2):
            with contextlib.suppress(OSError):  # closed
                kept.append((place, os.dup(place)))
                os.dup2(nowhere, place)
        yield
    finally:
        for place, before in kept:
            os.dup2(before, place)
            os.close(before)
        os.close(nowhere)
