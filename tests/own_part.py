"""A part of a user's own, for tests of how objectives treat one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenpo.core.parts import Part


def made(kind: type[Part], call: Callable[..., Any] | None = None, **declared: Any) -> Any:
    """A part of that kind, shown as "Mine()"; `call` is its `__call__`, `declared` the rest of its class."""
    methods = {} if call is None else {"__call__": call}
    return dataclass(frozen=True)(type("Mine", (kind,), {"__module__": __name__, **methods, **declared}))()


def gives(kind: type[Part], answer: Any) -> Any:
    """A part of that kind with one answer to everything."""
    return made(kind, lambda self, *given: answer)
