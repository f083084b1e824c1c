"""Checks whether an engine has the inputs that an objective needs, and whether its schedule of updates suits it."""

import warnings
from collections.abc import Iterator, Mapping

import torch

from ..base.errors import refuse
from .objective import Objective
from .parts.correction import RolloutCorrection
from .parts.surrogate import Clip, FixedBounds, WeightedRatio
from .parts.weights import ProbabilityWeight
from .types import OPTIONAL


def negotiate(
    objective: Objective,
    provides: frozenset[str] = OPTIONAL,
    engine: str = "the embedded engine",
    remedies: Mapping[str, str] | None = None,
) -> None:
    """Raises Unsupported, with a remedy, for each input that the objective reads and the engine lacks.

    Args:
        provides: the optional inputs that the engine has.
        engine: its name, for messages.
        remedies: for an input, how to make the engine provide it.
    """
    refuse(missing(objective, provides, engine, remedies))


def missing(
    objective: Objective, provides: frozenset[str], engine: str, remedies: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Yields a sentence for each input that `negotiate` rejects."""
    for name in sorted(objective.needs - provides):
        computed = any(part.gives == name for part in objective.supplied)
        remedy = (remedies or {}).get(name) or (
            "train with the embedded engine (tokenpo train), which computes it"
            if computed
            else f"choose another method, or compute {name} yourself and call the objective from your own loop"
        )
        yield (
            f"{objective.name} needs {name}, which {engine} does not provide (it has "
            f"{', '.join(sorted(provides))}): {remedy}"
        )


def _follows(objective: Objective) -> bool:
    return any(isinstance(part, RolloutCorrection) and part.current for part in objective.corrects_rollout)


def objective_notes(objective: Objective) -> list[str]:
    """Warnings about an objective that cannot learn as it seems to, whatever the schedule."""
    match objective.surrogate:
        case Clip(bounds=FixedBounds(high=high), ratio=WeightedRatio(weight=ProbabilityWeight(curve=curve))):
            largest = float(curve(torch.tensor([0.0, 1.0], dtype=torch.float64)).max())  # the curve is monotone
            if largest > 1 + high:
                return [
                    f"{objective.name}: the clip at {1 + high:g} holds a weight that reaches {largest:g}: right tokens "
                    f"whose weight exceeds {1 + high:g} have no gradient before the policy moves; put the weight on "
                    'the advantage (tr_grpo: weight_placement="advantage"), or lower it'
                ]
    return []


def warn(objective: Objective) -> None:
    """Issues `objective_notes` as Python warnings, for hosts that have no console or log of their own."""
    for note in objective_notes(objective):
        warnings.warn(note, stacklevel=3)


def schedule_notes(objective: Objective, updates: int, more: str, one: str) -> list[str]:
    """Warnings about the objective, and about parts that are idle or biased with these updates per rollout batch.

    Args:
        more, one: phrases that say how to make more updates, and how to make only one.
    """
    notes = objective_notes(objective)
    if updates == 1 and (idle := objective.idle_on_policy):
        verdict = (
            "cannot act, because with one update per rollout batch the policy is still the one that sampled; " + more
        )
    elif updates > 1 and (idle := objective.assumes_on_policy) and not _follows(objective):
        verdict = (
            "takes the policy for the one that sampled, and after the first update on a rollout batch it is not; "
            f"{one} for the method as published"
        )
    else:
        return notes
    return [*notes, f"{objective.name}: {', '.join(type(part).__name__ for part in idle)} {verdict}"]
