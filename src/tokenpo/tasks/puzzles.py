"""Verifiers of two puzzles with more than one right text: Countdown, and Knights & Knaves."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from ..base.errors import MissingInput, TokenPOError, nearest
from .arithmetic import value_of
from .types import Problem, Score
from .verifier import TextVerifier

_NUMBERS = ("nums", "numbers")  # columns of the data row
_ROLES = {"knight", "knave"}
# 1e999999999 would be a number of a billion digits: the exponent has two.
_TARGET = re.compile(r"[+-]?[0-9]{1,40}([./][0-9]{1,40})?(e[+-]?[0-9]{1,2})?", re.IGNORECASE)


class Countdown(TextVerifier):
    """Reward 1 where an expression of + - * / uses each given number once and reaches the target.

    `Problem.answer` is the target; the column `nums` or `numbers` holds the numbers.
    """

    gives_away = False  # the target is part of the question

    def judge(self, answer: str, reference: tuple[list[int], Fraction]) -> Score:
        numbers, target = reference
        value, written = value_of(answer), "".join(answer.split())
        if value is None or sorted(map(int, re.findall(r"[0-9]+", answer))) != numbers:
            return Score(0.0, False, "malformed", written)
        return Score(float(value == target), value == target, answer=written)

    def reference(self, problem: Problem) -> tuple[list[int], Fraction]:
        """The numbers, ascending, and the target."""
        key = next((key for key in _NUMBERS if key in problem.columns), None)
        if key is None:
            hint = nearest("nums", problem.columns)
            raise MissingInput(f"countdown: a row has no column with the numbers ({hint}): call it 'nums'")
        numbers, target = problem.columns[key], str(problem.answer).strip()
        try:
            if not _TARGET.fullmatch(target) or not isinstance(numbers, (list, tuple)) or not numbers:
                raise ValueError
            return sorted(map(_operand, numbers)), Fraction(target)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise TokenPOError(
                f"countdown: {key} = {numbers!r:.80} and the target {problem.answer!r:.80} must be a list of whole "
                "numbers of 0 or more and a number, of 40 digits at most"
            ) from error


class KnightsKnaves(TextVerifier):
    """Reward 1 where everybody is called what the reference calls them, once each, in any order.

    The reference (`Problem.answer`) is a sentence too: "Ann is a knight, and Bob is a knave".
    """

    def judge(self, answer: str, reference: dict[str, str]) -> Score:
        roles = _roles(answer)
        if roles is None or roles.keys() != reference.keys():
            return Score(0.0, False, "malformed", " ".join(words(answer)))
        written = ", ".join(f"{name} {role}" for name, role in sorted(roles.items()))
        return Score(float(roles == reference), roles == reference, answer=written)

    def reference(self, problem: Problem) -> dict[str, str]:
        """Name to role."""
        roles = _roles(str(problem.answer))
        if roles is None:
            raise TokenPOError(
                f"knights_knaves: the reference {str(problem.answer)!r:.80} does not say who is what: "
                'write it as "Ann is a knight, and Bob is a knave"'
            )
        return roles


def words(text: str) -> list[str]:
    """The alternating names and roles of a sentence, in lower case.

    >>> words("(1) Ann is a knight, and\\n(2) Bob a knave.")
    ['ann', 'knight', 'bob', 'knave']
    """
    plain = re.sub(r"\([0-9]+\)|[.,;:]", " ", text.lower())
    return [word for word in plain.split() if word not in ("is", "a", "an", "and")]


def _roles(text: str) -> dict[str, str] | None:
    """Name to role; None where the text says anything else, or names somebody twice."""
    pairs = words(text)
    roles = dict(zip(pairs[::2], pairs[1::2], strict=False))
    return roles if roles and 2 * len(roles) == len(pairs) and _ROLES.issuperset(roles.values()) else None


def _operand(number: Any) -> int:
    """A number that an expression can contain: there a minus is an operation and a fraction a division."""
    text = str(int(number) if isinstance(number, float) and number.is_integer() else number).strip()
    if not re.fullmatch(r"[0-9]{1,40}", text):
        raise ValueError(text)
    return int(text)
