"""What a native library prints by itself, kept from the terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """What native code prints inside goes nowhere; Python's own streams are written out before."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none at all
            stream.flush()
    kept: list[tuple[int, int]] = []
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for place in (1, 2):
            with contextlib.suppress(OSError):  # closed: then nothing is seen of it
                kept.append((place, os.dup(place)))
                os.dup2(nowhere, place)
        yield
    finally:
        for place, before in kept:
            os.dup2(before, place)
            os.close(before)
        os.close(nowhere)
