"""The inputs of an objective, each declared once beside its field: checks, trials, files and texts read that."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor


@dataclass(frozen=True)
class Kind:
    """The numbers that an input may hold; all are finite.

    Args:
        shown: unit or range, as a declaration shows it.
        words: end the message of a number outside: "... is 2.5, but " + words.
        least: the smallest; it is itself outside where `open`.
        most: the largest.
        slack: how far, in nats, the rounding of other engines may carry a number beyond these.
        whole: whole numbers.
    """

    shown: str = ""
    words: str = ""
    least: float = -math.inf
    most: float = math.inf
    slack: float = 0.0
    open: bool = False
    whole: bool = False

    @property
    def bounded(self) -> bool:
        return bool(self.words)

    def outside(self, x: Any) -> Any:
        """Whether a number lies outside, or which of a tensor's do."""
        low = x <= self.least if self.open else x < self.least - self.slack
        return low | (x > self.most + self.slack)


REAL = Kind()
NATS = Kind("nats")
LOGPROB = Kind("nats", "log-probabilities are <= 0: give log p, not -log p", most=0.0, slack=0.05)
# The slack is large because some engines take an entropy as the difference of two large numbers in bf16.
ENTROPY = Kind("nats", "entropies are >= 0: give -Σ p log p, not Σ p log p", least=0.0, slack=0.5)
POSITIVE = Kind("> 0", "it must be > 0", least=0.0, open=True)
PROBABILITY = Kind("in (0, 1]", "probabilities lie in (0, 1]", least=0.0, most=1.0, slack=0.05, open=True)
COUNT = Kind("int >= 0", "it is counted from 0", least=0.0, whole=True)


@dataclass(frozen=True)
class Fact:
    """One input.

    Args:
        meaning: in one sentence, without its full stop.
        kind: of its numbers.
        more: what a reader of the code should know besides.
        shape: "[N]", "[N, T]" or "[N, R]"; only the last may hold NaN.
        ascending: along a response.
        context: kept outside the mask too, as what a tool has written there is part of the prefix of later tokens.
        neutral: what stands for "nothing known": a number, or the name of the field that is taken in its place.
        scale: how far from neutral its numbers typically lie; random trial batches have this deviation.
        formula: of the log-probabilities [..., V] of a next-token distribution, where it is a function of that.
    """

    meaning: str
    kind: Kind = REAL
    more: str = ""
    shape: str = "[N, T]"
    ascending: bool = False
    context: bool = False
    neutral: float | str = 0.0
    scale: float = 1.0
    formula: Callable[[Tensor], Tensor] | None = None

    @property
    def described(self) -> str:
        """Shape, kind and meaning."""
        more = f": {self.more}" if self.more else ""
        return f"{self.shape} {self.kind.shown}".rstrip() + f", {self.meaning}{more}."


Owner = TypeVar("Owner", bound=type)


def given(meaning: str, kind: Kind = REAL, **declaration: Any) -> dict[str, Fact]:
    """Metadata of a field that is always there; `declaration` as in `Fact`."""
    return {"fact": Fact(meaning, kind, **declaration)}


def optional(meaning: str, kind: Kind = REAL, **declaration: Any) -> Any:
    """A field that is None where the host does not have it; an objective names it in `needs`."""
    return dataclasses.field(default=None, metadata=given(meaning, kind, **declaration))


# The line of a docstring that the declarations take the place of.
DECLARED = "...: as each field declares."


def documented(owner: Owner) -> Owner:
    """The class, whose docstring gets a line for each declared field in the place of `DECLARED`."""
    lines = "\n        ".join(f"{name}: {fact.described}" for name, fact in facts_of(owner).items())
    owner.__doc__ = (owner.__doc__ or "").replace(DECLARED, lines)
    return owner


@functools.cache
def facts_of(owner: type) -> Mapping[str, Fact]:
    """The declared fields by name, in their order."""
    return {field.name: field.metadata["fact"] for field in dataclasses.fields(owner) if "fact" in field.metadata}


def entropy(logp: Tensor) -> Tensor:
    """H [...] of log-probabilities [..., V], nats."""
    return -(logp.exp() * logp).sum(-1)


def entropy_drift(logp: Tensor) -> Tensor:
    """Σ_v p_v² (log p_v + H)."""
    return (logp.exp() ** 2 * (logp + entropy(logp)[..., None])).sum(-1)


def collision(logp: Tensor) -> Tensor:
    """Σ_v p_v²."""
    return (2 * logp).exp().sum(-1)
