"""Ranges of numbers, as annotations of options and fields: `share: Share` is in [0, 1]; `Share | None` allows None."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Annotated, NamedTuple, Union, get_args, get_origin

from ..base.errors import OutOfRange


class Range(NamedTuple):
    """A set of values: its text in messages, after "expected", and whether it holds a value of any type."""

    text: str
    holds: Callable[[object], bool]

    def because(self, words: str) -> Range:
        """The same range, with these words added to its text."""
        return self._replace(text=f"{self.text}, {words}")


def is_number(value: object) -> bool:
    """Whether the value is a real number, but not NaN, True or False."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and value == value


def numbers_where(text: str, test: Callable[[float], bool]) -> Range:
    """The numbers that pass a test."""
    return Range(text, lambda value: is_number(value) and test(value))  # type: ignore[arg-type]


def at_least(least: float) -> Range:
    """Finite numbers from `least` on."""
    return numbers_where(f"a finite number >= {least}", lambda x: least <= x < math.inf)


def limit(least: float) -> Range:
    """Numbers ≥ `least`, including infinity, which stands for no limit."""
    return numbers_where(f"a number >= {least}", lambda x: x >= least)


def above(least: float) -> Range:
    """Numbers > `least`, including infinity."""
    return numbers_where(f"a number > {least}", lambda x: x > least)


def between(least: float, most: float) -> Range:
    """Numbers in the closed interval [least, most]."""
    return numbers_where(f"a number in [{least}, {most}]", lambda x: least <= x <= most)


def inside(least: float, most: float) -> Range:
    """Numbers in the open interval (least, most)."""
    return numbers_where(f"a number in ({least}, {most})", lambda x: least < x < most)


def whole(least: int, most: float = math.inf) -> Range:
    """Whole numbers from `least` to `most`."""
    end = f">= {least}" if most == math.inf else f"in {least}..{most}"
    return numbers_where(f"a whole number {end}", lambda x: isinstance(x, numbers.Integral) and least <= x <= most)


NUMBER = Range("a number", is_number)
FINITE = numbers_where("a finite number", math.isfinite)
POSITIVE = numbers_where("a finite number > 0", lambda x: 0 < x < math.inf)
NOT_NEGATIVE = at_least(0)
SHARE = between(0, 1)
FRACTION = numbers_where("a number in (0, 1]", lambda x: 0 < x <= 1)

Number = Annotated[float, NUMBER]
Finite = Annotated[float, FINITE]
Positive = Annotated[float, POSITIVE]
NotNegative = Annotated[float, NOT_NEGATIVE]
Share = Annotated[float, SHARE]
Fraction = Annotated[float, FRACTION]
Limit = Annotated[float, limit(0)]
AboveZero = Annotated[float, above(0)]
AboveOne = Annotated[float, above(1)]
Count = Annotated[int, whole(1)]
TokenId = Annotated[int, whole(0)]


def members(hint: object) -> Iterator[tuple[object, Range | None]]:
    """(type, its range or None) for each type of an annotation; `Share | None` has two types."""
    kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if get_origin(kind) in (Union, UnionType):
        for one in get_args(kind):
            yield from members(one)
    else:
        yield kind, next((note for note in notes if isinstance(note, Range)), None)


def range_of(hint: object, *kinds: type) -> Range | None:
    """The values that an annotation allows; None if it names neither a range nor a subclass of `kinds`."""
    types = list(members(hint))
    ranges = [allowed or NUMBER for kind, allowed in types if allowed or kind is float]
    plain = tuple(kind for kind, allowed in types if isinstance(kind, type) and not allowed and kind is not float)
    if not (any(allowed for _, allowed in types) or any(issubclass(kind, kinds) for kind in plain)):
        return None
    texts = [one.text for one in ranges]
    if named := [kind.__name__ for kind in plain if kind is not NoneType]:
        texts.append(f"a value of type {' or '.join(named)}")
    texts += ["none"] * (NoneType in plain)
    return Range(", or ".join(texts), lambda x: isinstance(x, plain) or any(one.holds(x) for one in ranges))


def require(owner: str, name: str, value: object, allowed: Range) -> None:
    """Raises OutOfRange for a value outside its range."""
    if not allowed.holds(value):
        raise OutOfRange(owner, name, value, allowed.text)
