"""A script of TRL's with one changed import: `from tokenpo.trl import GRPOConfig, GRPOTrainer`.

The names are TRL's, and so is everything but the loss: `TokenPOConfig` and `TokenPOTrainer` of `tokenpo.engines.trl`.
`method="hapo"` in the config chooses the loss. Without it the loss is TRL's own at the settings of the config, which
are refused where no method computes the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engines.trl.config import GRPOConfig
    from .engines.trl.trainer import GRPOTrainer

__all__ = ["GRPOConfig", "GRPOTrainer"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: everything else of TRL's is in trl")
    from .engines.trl import contract

    contract.check_import()
    from .engines.trl import trainer

    return getattr(trainer, name)
