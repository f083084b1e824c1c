"""Declarations of an objective's inputs, for checks, trial batches, recordings and explanations."""

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
    """The range of an input's numbers; all must be finite.

    Args:
        shown: unit or range, for texts.
        words: end of the message about a number outside: "... is 2.5, but " + words.
        least, most: bounds.
        slack: nats beyond the bounds that are still accepted, for the rounding of other engines.
        open: `least` itself is outside the range.
        whole: the numbers are integers.
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
        """Whether a number, or each entry of a tensor, lies outside the bounds."""
        low = x <= self.least if self.open else x < self.least - self.slack
        return low | (x > self.most + self.slack)


REAL = Kind()
NATS = Kind("nats")
LOGPROB = Kind("nats", "log-probabilities are <= 0: give log p, not -log p", most=0.0, slack=0.05)
# The slack is large because some engines take an entropy as the difference of two large numbers in bf16.
ENTROPY = Kind("nats", "entropies are >= 0: give -Σ p log p, not Σ p log p", least=0.0, slack=0.5)
DIVERGENCE = Kind("nats", "divergences are >= 0", least=0.0, slack=0.05)
POSITIVE = Kind("> 0", "it must be > 0", least=0.0, open=True)
PROBABILITY = Kind("in (0, 1]", "probabilities lie in (0, 1]", least=0.0, most=1.0, slack=0.05, open=True)
COUNT = Kind("int >= 0", "it is counted from 0", least=0.0, whole=True)


@dataclass(frozen=True)
class Fact:
    """The declaration of one input.

    Args:
        meaning: a sentence without its full stop.
        kind: range of its numbers.
        more: a further remark.
        shape: "[N]", "[N, T]" or "[N, R]"; only the last may hold NaN.
        ascending: the numbers do not fall along a response.
        context: values outside the mask are kept, as a tool's tokens there are part of the prefix of later tokens.
        neutral: value that means "unknown": a number, or the name of the field to use in its place.
        scale: typical distance from neutral; the standard deviation in random trial batches.
        formula: computes the input from a distribution's log-probabilities [..., V], if it depends on nothing else.
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
    """Metadata of a required field; `declaration` as in `Fact`."""
    return {"fact": Fact(meaning, kind, **declaration)}


def optional(meaning: str, kind: Kind = REAL, **declaration: Any) -> Any:
    """A field that may be None; an objective that reads it lists it in `needs`."""
    return dataclasses.field(default=None, metadata=given(meaning, kind, **declaration))


def documented(owner: Owner) -> Owner:
    """Replaces the line "...: as each field declares." in the class's docstring by a line for each declared field."""
    lines = "\n        ".join(f"{name}: {fact.described}" for name, fact in facts_of(owner).items())
    owner.__doc__ = (owner.__doc__ or "").replace("...: as each field declares.", lines)
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
