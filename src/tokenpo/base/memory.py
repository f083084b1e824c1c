"""Memory that a machine does not have: told from mistakes, and said in one sentence."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from .errors import TokenPOError

# torch's on a CPU, on a GPU, and those of the libraries that it calls; the system's.
_SAID = re.compile(r"can(no|')t allocate memory|CUDA out of memory|ALLOC_FAILED", re.IGNORECASE)
_ASKED = re.compile(r"tried to allocate ([\d.]+) ?(bytes|[KMGT]iB)", re.IGNORECASE)


def is_shortage(error: BaseException) -> bool:
    """Whether an error says that memory could not be had.

    >>> is_shortage(MemoryError()), is_shortage(RuntimeError("CUDA out of memory.")), is_shortage(RuntimeError("no"))
    (True, True, False)
    """
    known = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return known or (isinstance(error, (RuntimeError, OSError)) and bool(_SAID.search(str(error))))


@contextlib.contextmanager
def enough_memory(doing: str, remedy: str) -> Iterator[None]:
    """What runs inside may want more memory than there is.

    Raises:
        TokenPOError: it did; with how much was asked for, where that is known, and the remedy.
    """
    try:
        yield
    except Exception as error:
        if not is_shortage(error):
            raise
        asked = _ASKED.search(str(error))
        size = f" ({_size(*asked.groups())} could not be had)" if asked else ""
        raise TokenPOError(f"memory ran out{doing and ' '}{doing}{size}: {remedy}") from error


def _size(number: str, unit: str) -> str:
    return f"{int(number) / 2**20:,.1f} MiB" if unit == "bytes" else f"{number} {unit}"
