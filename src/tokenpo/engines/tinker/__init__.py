"""Tinker: weights and optimiser on a server that speaks its API, sampling and forward passes too; the objective here.

    Trainer         a training client with an objective, for a loop of your own
    probe           which of a server's losses takes a gradient to the weights
    rollouts        what a sampling client returned, as facts
    loop            recipes: `tokenpo train RECIPE --engine tinker`

Importing this package imports nothing heavy; its names import `tinker`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .gradient import probe
    from .responses import rollouts
    from .trainer import Trainer

__all__ = ["Trainer", "probe", "rollouts"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import gradient, responses, trainer

    return {"Trainer": trainer.Trainer, "probe": gradient.probe, "rollouts": responses.rollouts}[name]
