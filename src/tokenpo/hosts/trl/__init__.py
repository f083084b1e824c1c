"""TRL as a host: `TokenPOTrainer` is TRL's `GRPOTrainer` with an objective of ours in place of its loss.

TRL is imported on first access to the trainer or its settings; the other modules work without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import TokenPOConfig
    from .trainer import TokenPOTrainer

__all__ = ["TokenPOConfig", "TokenPOTrainer"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import contract

    contract.check_import()
    from . import trainer

    return getattr(trainer, name)
