"""For TRL scripts with one changed import: `from tokenpo.trl import GRPOConfig, GRPOTrainer`.

Names and behaviour are TRL's, except for the loss: the classes are `TokenPOConfig` and `TokenPOTrainer` of
`tokenpo.hosts.trl`. `method="hapo"` in the config chooses the loss. Without `method` the loss is the one that TRL
computes at the settings of the config; settings for which no method computes TRL's loss are rejected.
`AsyncGRPOTrainer(method=...)` takes TRL's own config.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .hosts.trl.asynchronous import AsyncGRPOTrainer
    from .hosts.trl.trainer import GRPOConfig, GRPOTrainer

__all__ = ["AsyncGRPOTrainer", "GRPOConfig", "GRPOTrainer"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: everything else of TRL's is in trl")
    from .hosts.trl import check_import

    check_import()
    if name == "AsyncGRPOTrainer":  # TRL warns when its experiments are imported
        from .hosts.trl import asynchronous as module
    else:
        from .hosts.trl import trainer as module
    return getattr(module, name)
