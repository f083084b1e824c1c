"""A guard on verl's own trainers, and ours beside them: a run that asks for tokenpo never gets anything else."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

from ...base.errors import Unsupported


def trainers() -> None:
    """verl's own trainers from now on refuse a config with algorithm.tokenpo; ours registers itself."""
    for mode, stock in list(TRAINER_REGISTRY.items()):
        # Ours, and what is made of it, takes an objective. Its class may be in the middle of its import here.
        if not (issubclass(stock, _Guard) or hasattr(stock, "set_objective")):
            # The name and the module stay verl's: its own code compares neither, users' tracebacks show both.
            TRAINER_REGISTRY[mode] = type(stock.__name__, (_Guard, stock), {"__module__": stock.__module__})
    from . import trainer  # noqa: F401


class _Guard:
    def __init__(self, config: Any) -> None:
        if config.algorithm.get("tokenpo") is not None:
            raise Unsupported(
                f"algorithm.tokenpo is set, but trainer.v1.trainer_mode={config.trainer.v1.trainer_mode} starts verl's "
                "own trainer, which knows nothing of it: set trainer.v1.trainer_mode=tokenpo"
            )
        super().__init__(config)  # type: ignore[call-arg]
