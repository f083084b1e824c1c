"""Declarations of an objective's inputs, and the checks of tensors against them."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..base.errors import NotFinite, TokenPOError
from .ops import masked


@dataclass(frozen=True)
class Kind:
    """The range of an input's numbers; all must be finite.

    Args:
        shown: unit or range, for texts.
        words: end of the message about a number outside: "... is 2.5, but " + words.
        slack: nats beyond the bounds that are still accepted, for the rounding of other engines.
        open: `least` itself is outside the range.
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
        context: values outside the mask are kept, as later tokens depend on them.
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


HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Boundary:
    """Checks the fields of one value; its name, `owner`, starts every message."""

    owner: str

    def mask(self, x: Any) -> None:
        """x must be a boolean mask [N, T] with at least one true entry."""
        self._tensor(x, "mask")
        shape = list(x.shape)
        faults = {
            f"has shape {shape}, expected [N, T]": x.dim() != 2,
            f"has dtype {x.dtype}, expected torch.bool: convert it": x.dtype != torch.bool,
            f"has shape {shape}: the batch is empty": x.numel() == 0,
            "is false everywhere: no rollout has a response token": not x.any(),
        }
        if fault := next((words for words, found in faults.items() if found), ""):
            raise TokenPOError(f"{self.owner}.mask {fault}")

    def shape(self, x: Any, name: str, shape: tuple[int, ...]) -> None:
        """x must be a tensor of this shape, [N] or [N, T]."""
        self._tensor(x, name)
        if tuple(x.shape) != shape:
            axes = "[N, T]" if len(shape) == 2 else "[N]"
            raise TokenPOError(f"{self.owner}.{name} has shape {list(x.shape)}, expected {axes} = {list(shape)}")

    def fact(self, x: Any, name: str, fact: Fact, mask: Tensor) -> Tensor:
        """x, checked against its declaration: detached, padding zeroed, integer or at least float32."""
        by_token = fact.shape == "[N, T]"
        if fact.shape == "[N, R]":
            self._tensor(x, name)
            if x.dim() != 2 or len(x) != len(mask) or not x.shape[1]:
                shape = list(x.shape)
                raise TokenPOError(f"{self.owner}.{name} has shape {shape}, expected [N, R] with N = {len(mask)}")
        else:
            self.shape(x, name, tuple(mask.shape) if by_token else (len(mask),))
        if fact.kind.whole:
            if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
                raise TokenPOError(f"{self.owner}.{name} has dtype {x.dtype}, expected integers such as torch.long")
            x = x.masked_fill(~mask, 0) if by_token and not fact.context else x
        elif by_token:
            x = self.tokens(x, name, mask)
        else:
            x = self._real(x, name, x.isinf() if fact.shape == "[N, R]" else ~x.isfinite())
        if fact.kind.bounded:
            outside = fact.kind.outside(x.detach())
            self._refuse(x, name, outside & mask if by_token else outside, f"but {fact.kind.words}")
        if fact.ascending:
            falls = mask & (x < x.cummax(1).values)
            self._refuse(x, name, falls, "less than at an earlier token: number the turns of a response in their order")
        return x.detach()

    def kept_ids(self, x: Any, token_ids: Tensor | None, mask: Tensor) -> None:
        """x must be ids [N, T, K], -1 last, and hold every sampled token whose set is not empty."""
        self._tensor(x, "kept_ids")
        if x.dim() != 3 or x.shape[:2] != mask.shape or not x.shape[2] or x.is_floating_point():
            raise TokenPOError(
                f"{self.owner}.kept_ids has shape {list(x.shape)} and dtype {x.dtype}, expected int [N, T, K] with "
                f"[N, T] = {list(mask.shape)}"
            )
        if token_ids is not None:
            lacks = mask & (x[..., 0] >= 0) & ~(x == token_ids[..., None]).any(-1)
            why = "which is not in its kept_ids: give the sets of the policy that sampled"
            self._refuse(token_ids, "token_ids", lacks, why)

    def tokens(self, x: Any, name: str, mask: Tensor) -> Tensor:
        """x [N, T], checked to be finite on response tokens: padding zeroed, at least float32."""
        self.shape(x, name, tuple(mask.shape))
        if not x.is_floating_point():
            raise TokenPOError(f"{self.owner}.{name} has dtype {x.dtype}, expected a floating-point tensor")
        x = masked.keep(x.float() if x.dtype in HALF else x, mask)
        # One sum is faster than N·T flags. As a sum of finite numbers may overflow, each is then looked at.
        if not math.isfinite(x.detach().sum().item()) and (bad := ~x.detach().isfinite()).any():
            row, place = self._first(x, name, bad)
            raise NotFinite(
                f"{place} on a response token: find its cause (an overflow in the forward pass, or a wrong mask)", row
            )
        return x

    def _real(self, x: Tensor, name: str, bad: Tensor) -> Tensor:
        if x.is_complex():
            raise TokenPOError(f"{self.owner}.{name} has dtype {x.dtype}, expected real numbers")
        if bad.any():
            row, place = self._first(x, name, bad)
            raise NotFinite(f"{place}: it must be finite, mend what made it", row)
        return x.float() if x.dtype in HALF or not x.is_floating_point() else x

    def _refuse(self, x: Tensor, name: str, bad: Tensor, why: str) -> None:
        if bad.any():
            raise TokenPOError(f"{self._first(x, name, bad)[1]}, {why}")

    def _first(self, x: Tensor, name: str, bad: Tensor) -> tuple[int, str]:
        place = bad.nonzero()[0].tolist()
        return place[0], f"{self.owner}.{name}{place} is {x[tuple(place)].item():g}"

    def _tensor(self, x: Any, name: str) -> None:
        if not isinstance(x, Tensor):
            raise TokenPOError(f"{self.owner}.{name} must be a tensor, got {type(x).__name__}")
