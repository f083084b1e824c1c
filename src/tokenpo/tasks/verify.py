"""Verifiers of data-set tasks: `exact`, `math`, two puzzles, or "package.module:function" of the user."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from ..base.errors import TokenPOError, UnknownName, nearest
from .extract import auto, boxed, extractor
from .pool import LONGEST, Pool
from .puzzles import Countdown, KnightsKnaves
from .rewards import UserReward
from .types import Problem, Score

_ACCEPTED = {"math": ("extract", "seconds", "workers")}  # the other verifiers of ours take an extractor alone
_OPTION_NAMES = {"seconds": "verifier_seconds", "workers": "verifier_workers"}  # as users write them
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?")


class Verifier(Protocol):
    """Scores completions against `Problem.answer` (needed only where `needs_answer`); `source`: see `UserReward`.

    `gives_away`: whether a prompt that shows the reference gives the answer away. `reads_answers`: whether a score
    says which answer the completion gives; else its `answer` is None, of which nothing follows.
    """

    needs_answer: bool
    gives_away: bool
    reads_answers: bool
    source: str

    def check(self, problem: Problem) -> None:
        """Raises TokenPOError where no answer to the problem could be judged: found before a run, not in its course."""
        ...

    def __call__(self, problems: list[Problem], completions: list[str], ids: list[list[int]]) -> list[Score]:
        """One score per completion."""
        ...

    def close(self) -> None:
        """Ends what it started."""
        ...


@dataclass(frozen=True)
class VerifierOptions:
    """What verifiers can be told.

    Args:
        extract: where the answer stands, a name of `EXTRACTORS`; "" is the verifier's own way.
        correct_at: least reward that counts as correct, for functions of the user.
        seconds: wall-clock limit per answer, for `math`; messages call it verifier_seconds.
        workers: its processes; 0 is one per core, four at most; messages call it verifier_workers.
        reward_seconds: wall-clock limit per call of a function of the user; 0 calls it in this process, without one.
        reward_errors: "stop" or "zero": what becomes of a call that fails, see `UserReward`.
    """

    extract: str = ""
    correct_at: float = 1.0
    seconds: float = 5.0
    workers: int = 0
    reward_seconds: float = 300.0
    reward_errors: str = "stop"


def make_verifier(name: str, options: VerifierOptions, task: str) -> Verifier:
    """The verifier called `name`, or around the function at the dotted path `name`.

    Raises:
        UnknownName: no such verifier, extractor, module or function.
        TokenPOError: an option that means nothing to this verifier, or is out of its range.
    """
    if ":" not in name and name not in VERIFIERS:
        remedy = f'{nearest(name, VERIFIERS)}, or give a function of yours as "package.module:function"'
        raise UnknownName(f"{task}: no verifier is called {name!r}: {remedy}")
    _refuse_ignored(name, options, task)
    if ":" in name:
        return UserReward(name, options.correct_at, options.reward_seconds, options.reward_errors)
    return VERIFIERS[name](options, task)


def _refuse_ignored(name: str, options: VerifierOptions, task: str) -> None:
    """An option that was set, and that this verifier does not read."""
    accepted = ("correct_at", "reward_seconds", "reward_errors") if ":" in name else _ACCEPTED.get(name, ("extract",))
    for option in fields(options):
        value = getattr(options, option.name)
        if value != option.default and option.name not in accepted:
            known = ", ".join(_OPTION_NAMES.get(field, field) for field in accepted)
            about = f"{_OPTION_NAMES.get(option.name, option.name)} = {value!r} means nothing to the verifier {name!r}"
            raise TokenPOError(f"{task}: {about}, which takes {known}: leave it out")


class Exact:
    """Reward 1 where the extracted answer and the reference are the same text, but for case, blanks and separators."""

    needs_answer, gives_away, reads_answers, source = True, True, True, ""

    def __init__(self, options: VerifierOptions, task: str) -> None:
        self._find = extractor(options.extract or "auto", task).find

    def check(self, problem: Problem) -> None:
        """Any reference will do."""

    def __call__(self, problems: list[Problem], completions: list[str], ids: list[list[int]]) -> list[Score]:
        return [self._judge(problem, text) for problem, text in zip(problems, completions, strict=True)]

    def close(self) -> None:
        """Nothing to end."""

    def _judge(self, problem: Problem, text: str) -> Score:
        answer = self._find(text)
        if answer is None:
            return Score(0.0, False, "no answer")
        answer = normalised(answer)
        correct = answer in [normalised(reference) for reference in references(problem.answer)]
        return Score(float(correct), correct, answer=answer)


class Math:
    r"""Reward 1 where math-verify finds the answer equal to the reference; each answer under a wall-clock limit.

    The last `\boxed{}` counts, where there is one.

    Notes: "no answer", "unreadable reference", "timeout", "crash" (the process died), "error: <exception>".
    """

    needs_answer, gives_away, reads_answers, source = True, True, True, ""

    def __init__(self, options: VerifierOptions, task: str) -> None:
        if find_spec("math_verify") is None:
            raise TokenPOError(f"{task}: the verifier 'math' needs math-verify: pip install 'tokenpo[tasks]'")
        self._extract = options.extract
        self._find = extractor(options.extract or "whole", task).find
        if options.workers < 0:
            raise TokenPOError(f"{task}: verifier_workers = {options.workers} must be 0 or more")
        if not 0 < options.seconds <= LONGEST:
            raise TokenPOError(
                f"{task}: verifier_seconds = {options.seconds} must be more than 0 and at most {LONGEST}"
            )
        workers = options.workers or min(4, os.cpu_count() or 1)
        self._pool = Pool(Path(__file__).with_name("math_equal.py"), "equal", workers, options.seconds)

    def check(self, problem: Problem) -> None:
        """A reference that is not read is a note."""

    def __call__(self, problems: list[Problem], completions: list[str], ids: list[list[int]]) -> list[Score]:
        answers = [self._find(text) for text in completions]
        if self._extract in ("", "whole"):
            # math-verify makes one set of boxes that stand close together: "\boxed{1} no: \boxed{2}" would be neither.
            boxes = [None if answer is None else boxed(answer) for answer in answers]
            answers = [
                answer if box is None else rf"\boxed{{{box}}}" for answer, box in zip(answers, boxes, strict=True)
            ]
        else:  # an extracted formula is bare LaTeX, which math-verify wants in a box
            answers = [None if answer is None else rf"\boxed{{{answer}}}" for answer in answers]
        jobs = [
            (references(problem.answer), answer) for problem, answer in zip(problems, answers, strict=True) if answer
        ]
        outcomes = iter(self._pool.map(jobs))
        return [self._score(next(outcomes)) if answer else Score(0.0, False, "no answer") for answer in answers]

    def close(self) -> None:
        """Kills the processes."""
        self._pool.close()

    @staticmethod
    def _score(outcome: Any) -> Score:
        if outcome.note:
            return Score(0.0, False, outcome.note)
        correct, note, answer = outcome.value
        return Score(float(correct), bool(correct), note, answer)


VERIFIERS: Mapping[str, Callable[[VerifierOptions, str], Verifier]] = MappingProxyType(
    {
        "exact": Exact,
        "math": Math,
        "countdown": lambda options, task: Countdown(options.extract, task),
        "knights_knaves": lambda options, task: KnightsKnaves(options.extract, task),
    }
)


def checked(verifier: Verifier, problems: list[Problem]) -> list[Problem]:
    """The problems, each of which the verifier can judge.

    Raises:
        TokenPOError: one it cannot; the message says where it stands.
    """
    for problem in problems:
        try:
            verifier.check(problem)
        except TokenPOError as error:
            raise type(error)(f"{problem.place}: {error}") from error
    return problems


def references(answer: Any) -> list[str]:
    r"""The accepted answers as text: of a worked solution only what is boxed, tagged or behind `####`.

    >>> references("6 * 7 = 42 #### 42"), references([0.5, 7.0, "x"])
    (['42'], ['0.5', '7', 'x'])
    """
    if isinstance(answer, Sequence) and not isinstance(answer, str):
        return [text for item in answer for text in references(item)]
    text = str(int(answer) if isinstance(answer, float) and answer.is_integer() else answer)
    return [auto(text) or text.strip()]


def normalised(text: str) -> str:
    r"""Text in the form in which `exact` compares it.

    >>> normalised(" $1,234$. "), normalised("New  York")
    ('1234', 'new york')
    """
    text = " ".join(text.casefold().split()).strip("$").removesuffix(".").strip("$ ")
    return text.replace(",", "") if _GROUPED.fullmatch(text) else text
