"""A file that is there whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ..errors import TokenPOError


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write; at the end it is brought to the disk and takes the name, after an error it is gone.

    Raises:
        TokenPOError: the place cannot be written.
    """
    part = path.with_name(f".writing-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise TokenPOError(f"{path} cannot be written: {error.strerror}; give another place") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
