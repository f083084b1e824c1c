"""Our trainer in verl's table, and a guard on verl's own: a run that asks for tokenpo never gets anything else."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY, register_trainer

from ...errors import Unsupported
from .trainer import NAME, TokenPOTrainer


def trainers() -> None:
    """Registers the trainer `tokenpo`; verl's own trainers then refuse a config with algorithm.tokenpo."""
    for mode, stock in list(TRAINER_REGISTRY.items()):
        if not issubclass(stock, (TokenPOTrainer, _Guard)):
            # The name and the module stay verl's: its own code compares neither, users' tracebacks show both.
            TRAINER_REGISTRY[mode] = type(stock.__name__, (_Guard, stock), {"__module__": stock.__module__})
    if NAME not in TRAINER_REGISTRY:
        register_trainer(NAME)(TokenPOTrainer)


class _Guard:
    def __init__(self, config: Any) -> None:
        if config.algorithm.get("tokenpo") is not None:
            raise Unsupported(
                f"algorithm.tokenpo is set, but trainer.v1.trainer_mode={config.trainer.v1.trainer_mode} starts verl's "
                f"own trainer, which knows nothing of it: set trainer.v1.trainer_mode={NAME}"
            )
        super().__init__(config)  # type: ignore[call-arg]
