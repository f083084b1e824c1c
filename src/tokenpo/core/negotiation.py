"""What an engine has, and how it makes its updates, held against what an objective is."""

from __future__ import annotations

from collections.abc import Mapping

from ..base.errors import Unsupported
from .objective import Objective
from .types import OPTIONAL


def negotiate(
    objective: Objective,
    provides: frozenset[str] = OPTIONAL,
    engine: str = "the embedded engine",
    remedies: Mapping[str, str] | None = None,
) -> None:
    """Refuses a method that reads what an engine does not have; nothing is ever replaced by something else.

    Args:
        provides: what the engine has of `objective.needs`.
        engine: what messages call it.
        remedies: input -> how the engine could be brought to provide it.

    Raises:
        Unsupported: naming method, input, engine and remedy.
    """
    for name in sorted(objective.needs - provides):
        remedy = (remedies or {}).get(name) or (
            f"choose another method, or compute {name} yourself and call the objective from your own loop"
        )
        raise Unsupported(
            f"{objective.name} needs {name}, which {engine} does not provide (it has "
            f"{', '.join(sorted(provides))}): {remedy}"
        )


def schedule_notes(objective: Objective, updates: int, more: str, one: str) -> list[str]:
    """What of an objective is idle, or biased, with that many updates on a rollout batch.

    Args:
        more: how to make more updates, in a phrase.
        one: how to make only one.
    """
    notes: list[str] = []
    idle = objective.idle_on_policy
    if idle and updates == 1:
        parts = ", ".join(type(part).__name__ for part in idle)
        notes.append(
            f"{objective.name}: {parts} cannot act, because with one update per rollout batch the policy is still the "
            f"one that sampled; {more}"
        )
    blind = objective.assumes_on_policy
    if blind and updates > 1:
        parts = ", ".join(type(part).__name__ for part in blind)
        notes.append(
            f"{objective.name}: {parts} takes the policy for the one that sampled, and after the first update on a "
            f"rollout batch it is not; {one} for the method as published"
        )
    return notes
