"""What a number may be: every range of an option or of a part's field, and the one sentence for a value outside."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import NamedTuple

from ..base.errors import OutOfRange


class Range(NamedTuple):
    """A set of values.

    Args:
        text: its name in messages, after "expected".
        holds: whether a value of any kind is in it.
    """

    text: str
    holds: Callable[[object], bool]

    def because(self, words: str) -> Range:
        """The same, with what is wrong outside of it."""
        return self._replace(text=f"{self.text}, {words}")

    def or_none(self) -> Range:
        """The same and None."""
        return Range(f"{self.text}, or none", lambda value: value is None or self.holds(value))


def is_number(value: object) -> bool:
    """A real number other than NaN; True and False, which Python counts as numbers, are none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and value == value


def numbers_where(text: str, test: Callable[[float], bool]) -> Range:
    """The numbers that pass a test."""
    return Range(text, lambda value: is_number(value) and test(value))  # type: ignore[arg-type]


def at_least(least: float) -> Range:
    """Finite."""
    return numbers_where(f"a finite number >= {least}", lambda x: least <= x < math.inf)


def limit(least: float) -> Range:
    """At least this; infinity is in it, and is no limit."""
    return numbers_where(f"a number >= {least}", lambda x: x >= least)


def above(least: float) -> Range:
    """More than this; infinity is in it."""
    return numbers_where(f"a number > {least}", lambda x: x > least)


def between(least: float, most: float) -> Range:
    return numbers_where(f"a number in [{least}, {most}]", lambda x: least <= x <= most)


def inside(least: float, most: float) -> Range:
    """Without its ends."""
    return numbers_where(f"a number in ({least}, {most})", lambda x: least < x < most)


def whole(least: int, most: float = math.inf) -> Range:
    """Whole numbers."""
    end = f">= {least}" if most == math.inf else f"in {least}..{most}"
    return numbers_where(f"a whole number {end}", lambda x: isinstance(x, numbers.Integral) and least <= x <= most)


NUMBER = Range("a number", is_number)
FINITE = numbers_where("a finite number", math.isfinite)
POSITIVE = numbers_where("a finite number > 0", lambda x: 0 < x < math.inf)
NOT_NEGATIVE = at_least(0)
SHARE = between(0, 1)
FRACTION = numbers_where("a number in (0, 1]", lambda x: 0 < x <= 1)


def require(part: object, **fields: Range) -> None:
    """Refuses a part that holds a value outside its range; for `__post_init__`.

    Raises:
        OutOfRange: naming the part's type, the field, its value and the range.
    """
    for name, allowed in fields.items():
        require_value(type(part).__name__, name, getattr(part, name), allowed)


def require_value(owner: str, name: str, value: object, allowed: Range) -> None:
    """The same for one value, such as an option from which a part is computed.

    Raises:
        OutOfRange: naming owner, name, value and range.
    """
    if not allowed.holds(value):
        raise OutOfRange(owner, name, value, allowed.text)
