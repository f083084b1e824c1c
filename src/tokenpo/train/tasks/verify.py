"""Verifiers of data-set tasks: `exact`, `math`, `countdown`, or the user's "package.module:function"."""

import ast
import operator
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...base.errors import MissingInput, TokenPOError, UnknownName, choose, nearest, require_package
from ...base.pool import Outcome, Pool
from .extract import EXTRACTORS, auto, last_marked, whole
from .rewards import UserReward
from .types import Problem, Score, Verifier


@dataclass(frozen=True)
class VerifierOptions:
    """Options of the task `files`, which documents them; each verifier accepts some and rejects the others."""

    extract: str = ""
    correct_at: float = 1.0
    verifier_seconds: float = 5.0
    verifier_workers: int = 0
    reward_seconds: float = 300.0
    reward_errors: str = "stop"


class TextVerifier(Verifier):
    """Extracts one answer from each completion and judges it in this process."""

    accepts = ("extract",)
    extract = "tag"  # the default extractor

    def __init__(self, options: VerifierOptions, task: str) -> None:
        self._find = choose(f"{task}: extract", options.extract or self.extract, EXTRACTORS)

    def reference(self, problem: Problem) -> Any:
        """The parsed reference answer; raises TokenPOError if it cannot be parsed."""
        raise NotImplementedError

    def judge(self, answer: str, reference: Any) -> Score:
        raise NotImplementedError

    def check(self, problems: list[Problem]) -> None:
        """Parses every reference; an error names the row."""
        for problem in problems:
            try:
                self.reference(problem)
            except TokenPOError as error:
                raise type(error)(f"{problem.place}: {error}") from error

    def __call__(self, problems: list[Problem], completions: list[str], ids: list[list[int]]) -> list[Score]:
        """Notes: "no answer", "malformed"."""
        answers = [self._find(problem.opened(text)) for problem, text in zip(problems, completions, strict=True)]
        pairs = zip(answers, map(self.reference, problems), strict=True)
        return [Score(0.0, False, "no answer") if said is None else self.judge(said, gold) for said, gold in pairs]


_LONGEST = 200  # characters; bounds the size of every number and the depth of the tree
_ALPHABET = re.compile(r"[0-9 ()+*/-]*")
_OPERATIONS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def value_of(text: str) -> Fraction | None:
    """The value of whole numbers joined by + - * / and brackets; None for other text. Nothing is run as code.

    >>> value_of("94*4 - 61/2")
    Fraction(691, 2)
    >>> value_of("2**3") is value_of("1/0") is value_of("x") is None
    True
    """
    if len(text) > _LONGEST or not _ALPHABET.fullmatch(text):
        return None
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    raise ValueError(f"{type(node).__name__} is not arithmetic")


_NUMBERS = ("nums", "numbers")  # columns of the data row
# The exponent has at most two digits: 1e999999999 would be a number of a billion digits.
_TARGET = re.compile(r"[+-]?[0-9]{1,40}([./][0-9]{1,40})?(e[+-]?[0-9]{1,2})?", re.IGNORECASE)


class Countdown(TextVerifier):
    """Reward 1 if an expression of + - * / uses each number of the column `nums` (`numbers`) once and is the answer."""

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
            expected = "a list of whole numbers of 0 or more and a number, of 40 digits at most"
            given = f"{key} = {numbers!r:.80} and the target {problem.answer!r:.80}"
            raise TokenPOError(f"countdown: {given} must be {expected}") from error


def _operand(number: Any) -> int:
    """The number as a whole one of 0 or more, which is what an expression contains; else ValueError."""
    text = str(int(number) if isinstance(number, float) and number.is_integer() else number).strip()
    if not re.fullmatch(r"[0-9]{1,40}", text):
        raise ValueError(text)
    return int(text)


_PLAIN = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?")  # a reference that is readable without asking a worker
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?")


def make_verifier(name: str, options: VerifierOptions, task: str) -> Verifier:
    """The verifier called `name`, or around the function at the dotted path `name`.

    Raises:
        UnknownName: no such verifier, extractor, module or function.
        TokenPOError: an option that this verifier does not read, or out of its range.
    """
    made = VERIFIERS.get(name)
    if made is None and ":" not in name:
        remedy = f'{nearest(name, VERIFIERS)}, or give your own function as "package.module:function"'
        raise UnknownName(f"{task}: no verifier is called {name!r}: {remedy}")
    accepted = (made or UserReward).accepts
    given = {option.name: getattr(options, option.name) for option in fields(options)}
    unread = [option.name for option in fields(options) if given[option.name] != option.default]
    if foreign := next((option for option in unread if option not in accepted), ""):
        about = f"{foreign} = {given[foreign]!r} is ignored by the verifier {name!r}"
        raise TokenPOError(f"{task}: {about}, which takes {', '.join(accepted)}: leave it out")
    if made is None:
        return UserReward(name, options.correct_at, options.reward_seconds, options.reward_errors)
    return made(options, task)


class Exact(TextVerifier):
    """Reward 1 if answer and reference are the same text up to case, blanks and separators."""

    extract = "auto"

    def reference(self, problem: Problem) -> list[str]:
        """The accepted texts."""
        return [normalised(text) for text in references(problem.answer)]

    def judge(self, answer: str, reference: list[str]) -> Score:
        answer = normalised(answer)
        return Score(float(answer in reference), answer in reference, answer=answer)


class Math(Verifier):
    """Reward 1 if the answer equals the reference by the conventions of docs/tasks.md, within a time limit.

    Notes: "no answer", "question repeated", "unreadable reference", "timeout", "crash", "error: <exception>".
    """

    accepts = ("extract", "verifier_seconds", "verifier_workers")

    def __init__(self, options: VerifierOptions, task: str) -> None:
        require_package(f"{task}: the verifier 'math'", "math_verify", "tasks")
        self._find = choose(f"{task}: extract", options.extract or "whole", EXTRACTORS)
        workers = options.verifier_workers or min(4, os.cpu_count() or 1)
        self._pool = Pool(Path(__file__).parent / "maths" / "equal.py", "equal", workers, options.verifier_seconds)

    def check(self, problems: list[Problem]) -> None:
        """Reads every reference once: warns of unreadable ones, which only a copy can equal; raises if all are."""
        given = [(problem.place, text) for problem in problems for text in references(problem.answer)]
        doubtful = sorted({text for _, text in given if not _PLAIN.fullmatch(text)})
        outcomes = zip(doubtful, self._pool.map([([text], text, True) for text in doubtful]), strict=True)
        unreadable = {text for text, outcome in outcomes if outcome.note or not outcome.value[3]}
        places = [f"{place}: {text!r:.80}" for place, text in given if text in unreadable]
        if not places:
            return
        first = "; ".join(places[:3])
        message = f"math cannot read {len(places)} of {len(given)} references, of which only copies score: {first}"
        if len(places) == len(given):
            raise TokenPOError(f"{message}: name another column, or take the verifier 'exact'")
        warnings.warn(f"{message}: mend these rows or leave them out", stacklevel=4)

    def __call__(self, problems: list[Problem], completions: list[str], ids: list[list[int]]) -> list[Score]:
        answers = [self._answer(problem.opened(text)) for problem, text in zip(problems, completions, strict=True)]
        given = [(problem, *answer) for problem, answer in zip(problems, answers, strict=True) if answer[0]]
        jobs = [(references(problem.answer), text, marked, asked(problem.prompt)) for problem, text, marked in given]
        outcomes = iter(self._pool.map(jobs))
        return [self._score(next(outcomes)) if text else Score(0.0, False, "no answer") for text, _ in answers]

    def close(self) -> None:
        self._pool.close()

    def _answer(self, text: str) -> tuple[str, bool]:
        """The answer, "" for none, and whether it is marked; an unmarked answer is the whole text."""
        if self._find is not whole:
            return self._find(text) or "", True
        marked = last_marked(text)
        return (whole(text) or "", False) if marked is None else (marked, True)

    @staticmethod
    def _score(outcome: Outcome) -> Score:
        if outcome.note:
            return Score(0.0, False, outcome.note)
        correct, note, answer, *_ = outcome.value
        return Score(float(correct), bool(correct), note, answer)


VERIFIERS: Mapping[str, type[Exact | Math | Countdown]] = MappingProxyType(
    {"exact": Exact, "math": Math, "countdown": Countdown}
)


def checked(verifier: Verifier, problems: list[Problem]) -> list[Problem]:
    """The problems, after `verifier.check` has accepted them."""
    verifier.check(problems)
    return problems


def references(answer: Any) -> list[str]:
    r"""The accepted answers as text; of a worked solution only the boxed or tagged part, or the text after `####`.

    >>> references("6 * 7 = 42 #### 42"), references([0.5, 7.0, "x"])
    (['42'], ['0.5', '7', 'x'])
    """
    if isinstance(answer, Sequence) and not isinstance(answer, str):
        return [text for item in answer for text in references(item)]
    text = str(int(answer) if isinstance(answer, float) and answer.is_integer() else answer)
    return [auto(text) or text.strip()]


def asked(prompt: str | list[dict[str, Any]]) -> str:
    """The text of a prompt, of chat messages all that they say.

    >>> asked([{"role": "system", "content": "Add."}, {"role": "user", "content": [{"type": "text", "text": "6+4?"}]}])
    'Add.\\n6+4?'
    """
    if isinstance(prompt, str):
        return prompt
    contents = [message.get("content") or "" for message in prompt]
    parts = [[{"text": content}] if isinstance(content, str) else content for content in contents]
    return "\n".join(str(part.get("text") or "") for content in parts for part in content)


def normalised(text: str) -> str:
    r"""Text in the form in which `exact` compares it.

    >>> normalised(" $1,234$. "), normalised("New  York")
    ('1234', 'new york')
    """
    text = " ".join(text.casefold().split()).strip("$").removesuffix(".").strip("$ ")
    return text.replace(",", "") if _GROUPED.fullmatch(text) else text
