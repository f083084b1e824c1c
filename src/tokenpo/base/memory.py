"""Turn errors that mean a lack of memory into one sentence."""

import contextlib
import re
from collections.abc import Iterator

from .errors import TokenPOError

# torch's messages on a CPU and on a GPU, those of the libraries that it calls, and the system's.
_SHORTAGE = re.compile(r"can(no|')t allocate memory|CUDA out of memory|ALLOC_FAILED", re.IGNORECASE)
_SIZE = re.compile(r"tried to allocate ([\d.]+) ?(bytes|[KMGT]iB)", re.IGNORECASE)


def is_shortage(error: BaseException | None) -> bool:
    """Whether an error means that memory could not be allocated.

    >>> is_shortage(MemoryError()), is_shortage(RuntimeError("CUDA out of memory.")), is_shortage(RuntimeError("no"))
    (True, True, False)
    """
    known = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return known or (isinstance(error, (RuntimeError, OSError)) and bool(_SHORTAGE.search(str(error))))


@contextlib.contextmanager
def enough_memory(doing: str, remedy: str) -> Iterator[None]:
    """Turns a lack of memory in the block into a TokenPOError with the size, if it is known, and the remedy."""
    try:
        yield
    except Exception as error:
        if not is_shortage(error):
            raise
        requested = _SIZE.search(str(error))
        size = ""
        if requested:
            number, unit = requested.groups()
            known = f"{int(number) / 2**20:,.1f} MiB" if unit == "bytes" else f"{number} {unit}"
            size = f" ({known} could not be had)"
        raise TokenPOError(f"memory ran out{doing and ' '}{doing}{size}: {remedy}") from error
