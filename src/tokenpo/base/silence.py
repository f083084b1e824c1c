"""Silence the output of native libraries: all of it, or only that of a failure."""

import contextlib
import os
import sys
import tempfile
import threading
from collections.abc import Iterator

_ONE = threading.RLock()  # only one thread at a time redirects a descriptor, else it might not be restored


@contextlib.contextmanager
def muted() -> Iterator[None]:
    """Sends file descriptors 1 and 2 to the null device while native code runs."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or None
            stream.flush()
    kept: list[tuple[int, int]] = []
    nowhere = os.open(os.devnull, os.O_WRONLY)
    _ONE.acquire()
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
        _ONE.release()


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Holds back output to file descriptor 2 until the block ends; drops it if the block raises, such as a panic's.

    Raises:
        RuntimeError: a Rust library panicked, which is no Exception.
    """
    with _ONE, contextlib.ExitStack() as stack:
        try:
            held, before = stack.enter_context(tempfile.TemporaryFile()), os.dup(2)
        except OSError:  # descriptor 2 is closed, or there is no room for a temporary file
            yield
            return
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException as error:
            held.truncate(0)
            if type(error).__name__ == "PanicException":
                raise RuntimeError(str(error)) from error
            raise
        finally:
            os.dup2(before, 2)
            os.close(before)
            held.seek(0)
            with contextlib.suppress(OSError):  # its reader has gone
                os.write(2, held.read())
