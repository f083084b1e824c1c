"""One method of each kind that an engine tells apart, where tests of all of them would do the same work again."""

import tokenpo
from tokenpo.core.objective import Objective
from tokenpo.methods import METHODS


def kind(objective: Objective) -> tuple[object, ...]:
    """What an engine asks an objective about: inputs, slots outside of the formula, scope, memories."""
    slots = (objective.temperature, objective.critic)
    return (
        objective.needs,
        objective.scope,
        objective.draws,
        objective.entropy_gradient,
        objective.follows_advantage,
        len(objective.split()),
        len(objective.memories),
        *(slot is None for slot in slots),
    )


def of_each_kind() -> list[str]:
    """The first method of each kind, in the order of the table."""
    first: dict[tuple[object, ...], str] = {}
    for name in METHODS:
        first.setdefault(kind(tokenpo.method(name)), name)
    return [*first.values()]
