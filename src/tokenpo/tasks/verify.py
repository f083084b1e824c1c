"""Verifiers of data-set tasks: `exact`, `math`, two puzzles, or "package.module:function" of the user."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from ..base.errors import TokenPOError, UnknownName, nearest
from ..base.pool import LONGEST, Outcome, Pool
from .extract import auto, extractor, hash_mark, last_marked, whole
from .puzzles import Countdown, KnightsKnaves
from .rewards import UserReward
from .types import Problem, Score

_ACCEPTED = {"math": ("extract", "seconds", "workers")}  # the other verifiers of ours take an extractor alone
_OPTION_NAMES = {"seconds": "verifier_seconds", "workers": "verifier_workers"}  # as users write them
_PLAIN = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?")  # a reference that needs no process to be read
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

    def check(self, problems: list[Problem]) -> None:
        """Raises TokenPOError or warns where no answer to one could be judged, before a run and not in its course."""
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

    def check(self, problems: list[Problem]) -> None:
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
    r"""Reward 1 where the answer equals the reference by the conventions of `maths.conventions`, within a time limit.

    Notes: "no answer", "unreadable reference", "timeout", "crash" (the process died), "error: <exception>".
    """

    needs_answer, gives_away, reads_answers, source = True, True, True, ""

    def __init__(self, options: VerifierOptions, task: str) -> None:
        if find_spec("math_verify") is None:
            raise TokenPOError(f"{task}: the verifier 'math' needs math-verify: pip install 'tokenpo[tasks]'")
        self._find = extractor(options.extract or "whole", task).find
        if options.workers < 0:
            raise TokenPOError(f"{task}: verifier_workers = {options.workers} must be 0 or more")
        if not 0 < options.seconds <= LONGEST:
            raise TokenPOError(
                f"{task}: verifier_seconds = {options.seconds} must be more than 0 and at most {LONGEST}"
            )
        workers = options.workers or min(4, os.cpu_count() or 1)
        self._pool = Pool(Path(__file__).parent / "maths" / "equal.py", "equal", workers, options.seconds)

    def check(self, problems: list[Problem]) -> None:
        """Reads every reference once: warns of those that no answer can equal, and refuses where all are such."""
        all_of_them = [(problem.place, text) for problem in problems for text in references(problem.answer)]
        doubtful = sorted({text for _, text in all_of_them if not _PLAIN.fullmatch(text)})
        outcomes = zip(doubtful, self._pool.map([([text], text, True) for text in doubtful]), strict=True)
        unreadable = {text for text, outcome in outcomes if outcome.note or not outcome.value[3]}
        found = [(place, text) for place, text in all_of_them if text in unreadable]
        if not found:
            return
        first = "; ".join(f"{place}: {text!r:.80}" for place, text in found[:3])
        message = f"math cannot read {len(found)} of {len(all_of_them)} references, of which only copies score: {first}"
        if len(found) == len(all_of_them):
            raise TokenPOError(f"{message}: name another column, or take the verifier 'exact'")
        warnings.warn(f"{message}: mend these rows or leave them out", stacklevel=4)

    def __call__(self, problems: list[Problem], completions: list[str], ids: list[list[int]]) -> list[Score]:
        answers = [self._answer(text) for text in completions]
        jobs = [
            (references(problem.answer), *answer)
            for problem, answer in zip(problems, answers, strict=True)
            if answer[0]
        ]
        outcomes = iter(self._pool.map(jobs))
        return [self._score(next(outcomes)) if answer else Score(0.0, False, "no answer") for answer, _ in answers]

    def close(self) -> None:
        """Kills the processes."""
        self._pool.close()

    def _answer(self, text: str) -> tuple[str, bool]:
        """The answer, "" for none, and whether a mark says where it stands; else it is all of the text."""
        if self._find is not whole:
            return self._find(text) or "", True
        marked = last_marked(text)
        if marked is None:
            marked = hash_mark(text, "####")
        return (whole(text) or "", False) if marked is None else (marked, True)

    @staticmethod
    def _score(outcome: Outcome) -> Score:
        if outcome.note:
            return Score(0.0, False, outcome.note)
        correct, note, answer, *_ = outcome.value
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
    verifier.check(problems)
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
