"""TRL as a host: `TokenPOTrainer` is TRL's `GRPOTrainer` with an objective in place of its loss.

TRL is imported on first access to the trainer or its settings; `settings` and `objective` work without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...base.errors import Unsupported

if TYPE_CHECKING:
    from .config import TokenPOConfig
    from .trainer import TokenPOTrainer

__all__ = ["TokenPOConfig", "TokenPOTrainer"]
RANGE = "trl>=1.16,<1.17"


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_import()
    from . import trainer

    return getattr(trainer, name)


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


def moved(what: str) -> Unsupported:
    """The error for TRL's internals when they are not as expected; `what` is the difference."""
    import trl  # pyright: ignore

    return Unsupported(
        f"trl {trl.__version__} is not the one that tokenpo.hosts.trl was written for: {what}; install trl 1.16, "
        "or a tokenpo that knows yours"
    )
