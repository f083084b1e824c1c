"""A file that is there whole or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ...base import files
from ...base.errors import TokenPOError


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Where to write; at the end it is brought to the disk and takes the name, after an error it is gone.

    Raises:
        TokenPOError: the place cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.whole(path) as part:
            yield part
    except OSError as error:
        raise TokenPOError(f"{path} cannot be written: {error.strerror}; give another place") from error
