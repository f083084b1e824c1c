"""Tinker: a server holds weights and optimiser, samples and runs forward passes; the objective runs here.

Trainer         a training client with an objective, for a loop of your own
probe           finds the server's loss that takes a gradient to the weights
rollouts        responses of a sampling client as rollouts
score           their log-probabilities by a sampling client: a reference or a teacher
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .gradient import probe
    from .responses import rollouts
    from .trainer import Trainer, score

__all__ = ["Trainer", "probe", "rollouts", "score"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import gradient, responses, trainer

    return {"probe": gradient, "rollouts": responses}.get(name, trainer).__dict__[name]
