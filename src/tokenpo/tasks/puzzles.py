"""Verifiers of two puzzles that have more than one right text: Countdown, and Knights & Knaves."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from ..base.errors import MissingInput, TokenPOError, nearest
from .arithmetic import value_of
from .extract import extractor
from .types import Problem, Score

_NUMBERS = ("nums", "numbers")  # columns of the data row
_ROLES = ("knight", "knave")
# Of a target: 1e999999999 would be a number of as many digits, and be written out.
_TARGET = re.compile(r"[+-]?[0-9]{1,40}([./][0-9]{1,40})?(e[+-]?[0-9]{1,2})?", re.IGNORECASE)


class Countdown:
    """Reward 1 where an expression of + - * / uses each of the given numbers once and its value is the target.

    `Problem.answer` is the target, the numbers are the column `nums` or `numbers`. Notes: "no answer", "malformed".
    """

    needs_answer, gives_away, reads_answers, source = True, False, True, ""  # the target is part of the question

    def __init__(self, extract: str, task: str) -> None:
        self._find = extractor(extract or "tag", task).find

    def check(self, problems: list[Problem]) -> None:
        """Each has numbers and a target."""
        _each(_numbers_and_target, problems)

    def __call__(self, problems: list[Problem], completions: list[str], ids: list[list[int]]) -> list[Score]:
        return [self._judge(problem, text) for problem, text in zip(problems, completions, strict=True)]

    def close(self) -> None:
        """Nothing to end."""

    def _judge(self, problem: Problem, text: str) -> Score:
        numbers, target = _numbers_and_target(problem)
        expression = self._find(text)
        if expression is None:
            return Score(0.0, False, "no answer")
        answer = "".join(expression.split())
        value = value_of(expression)
        if value is None or sorted(int(number) for number in re.findall(r"[0-9]+", expression)) != numbers:
            return Score(0.0, False, "malformed", answer)
        return Score(float(value == target), value == target, answer=answer)


class KnightsKnaves:
    """Reward 1 where everybody is called what the reference calls them, everybody once, in any order.

    The reference (`Problem.answer`) is a sentence too: "Ann is a knight, and Bob is a knave". Notes: "no answer",
    "malformed".
    """

    needs_answer, gives_away, reads_answers, source = True, True, True, ""

    def __init__(self, extract: str, task: str) -> None:
        self._find = extractor(extract or "tag", task).find

    def check(self, problems: list[Problem]) -> None:
        """Each reference says who is what."""
        _each(_reference, problems)

    def __call__(self, problems: list[Problem], completions: list[str], ids: list[list[int]]) -> list[Score]:
        return [self._judge(problem, text) for problem, text in zip(problems, completions, strict=True)]

    def close(self) -> None:
        """Nothing to end."""

    def _judge(self, problem: Problem, text: str) -> Score:
        reference = _reference(problem)
        sentence = self._find(text)
        if sentence is None:
            return Score(0.0, False, "no answer")
        roles = _roles(sentence)
        if roles is None or roles.keys() != reference.keys():
            return Score(0.0, False, "malformed", " ".join(words(sentence)))
        answer = ", ".join(f"{name} {role}" for name, role in sorted(roles.items()))
        return Score(float(roles == reference), roles == reference, answer=answer)


def _each(read: Callable[[Problem], object], problems: list[Problem]) -> None:
    """Reads each; the message of the first that cannot be read says where it stands."""
    for problem in problems:
        try:
            read(problem)
        except TokenPOError as error:
            raise type(error)(f"{problem.place}: {error}") from error


def words(text: str) -> list[str]:
    """The words that matter in who is what: name, role, name, role, ...

    >>> words("(1) Ann is a knight, and\\n(2) Bob a knave.")
    ['ann', 'knight', 'bob', 'knave']
    """
    plain = re.sub(r"\([0-9]+\)|[.,;:]", " ", text.lower())
    return [word for word in plain.split() if word not in ("is", "a", "an", "and")]


def _roles(text: str) -> dict[str, str] | None:
    """Name to role, or None where the text says anything else, or somebody twice."""
    names_and_roles = words(text)
    roles = dict(zip(names_and_roles[::2], names_and_roles[1::2], strict=False))
    paired = bool(names_and_roles) and 2 * len(roles) == len(names_and_roles)
    return roles if paired and all(role in _ROLES for role in roles.values()) else None


def _reference(problem: Problem) -> dict[str, str]:
    roles = _roles(str(problem.answer))
    if roles is None:
        raise TokenPOError(
            f"knights_knaves: the reference {str(problem.answer)!r:.80} does not say who is what: "
            'write it as "Ann is a knight, and Bob is a knave"'
        )
    return roles


def _numbers_and_target(problem: Problem) -> tuple[list[int], Fraction]:
    """The numbers, sorted, and the target."""
    key = next((key for key in _NUMBERS if key in problem.columns), None)
    if key is None:
        raise MissingInput(
            f"countdown: a row has no column with the numbers ({nearest('nums', problem.columns)}): call it 'nums'"
        )
    numbers: Any = problem.columns[key]
    target = str(problem.answer).strip()
    try:
        if not _TARGET.fullmatch(target):
            raise ValueError("the target")
        if not isinstance(numbers, (list, tuple)) or not numbers:
            raise TypeError("the numbers")
        return sorted(_operand(number) for number in numbers), Fraction(target)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise TokenPOError(
            f"countdown: {key} = {numbers!r:.80} and the target {problem.answer!r:.80} must be a list of whole numbers "
            "of 0 or more and a number, of 40 digits at most"
        ) from error


def _operand(number: Any) -> int:
    """A number that an expression can name: a minus there is an operation, and a fraction a division."""
    text = str(int(number) if isinstance(number, float) and number.is_integer() else number).strip()
    if not re.fullmatch(r"[0-9]{1,40}", text):
        raise ValueError(text)
    return int(text)
