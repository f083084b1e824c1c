"""Tinker: weights and optimiser on a server that speaks its API, sampling and forward passes too; the objective here.

    Trainer         a training client with an objective, for a loop of your own
    rollouts        what a sampling client returned, as facts
    loop            recipes: `tokenpo train RECIPE --engine tinker`

Importing this package imports nothing heavy; its names import `tinker`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .responses import rollouts
    from .trainer import Trainer

__all__ = ["Trainer", "rollouts"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import responses, trainer

    return {"Trainer": trainer.Trainer, "rollouts": responses.rollouts}[name]
