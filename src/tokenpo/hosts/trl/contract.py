"""Checks of TRL's version and private functions, on which this adapter depends, and a temporary patch of them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...base.errors import Unsupported

RANGE = "trl>=1.16,<1.17"


def check_import() -> None:
    """Raises Unsupported if TRL is missing, broken, or not the version that this adapter was written for."""
    try:
        from trl import GRPOTrainer, __version__  # pyright: ignore  # noqa: F401
    except ImportError as error:
        raise Unsupported(
            f"tokenpo.hosts.trl needs {RANGE}, and it cannot be imported ({error}): pip install 'tokenpo[trl]'"
        ) from error
    if not __version__.startswith("1.16."):
        raise moved("its private functions may be others")


def launched_alone(processes: int) -> bool:
    """Whether accelerate's launcher was asked for several processes and started one, as it does without a GPU.

    It then sets MASTER_PORT, but not WORLD_SIZE.
    """
    launched = "ACCELERATE_USE_CPU" in os.environ and "MASTER_PORT" in os.environ
    return launched and processes == 1 and "WORLD_SIZE" not in os.environ


def moved(what: str) -> Unsupported:
    """The error for TRL's internals when they are not as expected; `what` is the difference."""
    import trl  # pyright: ignore

    return Unsupported(
        f"trl {trl.__version__} is not the one that tokenpo.hosts.trl was written for: {what}; install trl 1.16, "
        "or a tokenpo that knows yours"
    )


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Sets an attribute of an object and restores it at the end; one that came from the class is deleted again."""
    own = name in vars(owner)
    before = getattr(owner, name, None)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)
