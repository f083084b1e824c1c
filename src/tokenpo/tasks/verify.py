"""Verifiers of data-set tasks: `exact`, `math`, two puzzles, or "package.module:function" of the user."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..base.errors import TokenPOError, UnknownName, nearest
from ..base.pool import LONGEST, Outcome, Pool
from .extract import auto, extractor, hash_mark, last_marked, whole
from .puzzles import Countdown, KnightsKnaves
from .rewards import UserReward
from .types import Problem, Score
from .verifier import TextVerifier, Verifier, VerifierOptions

_PLAIN = re.compile(r"-?[0-9]{1,40}(\.[0-9]{1,40})?")  # a reference that needs no process to be read
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?")


def make_verifier(name: str, options: VerifierOptions, task: str) -> Verifier:
    """The verifier called `name`, or around the function at the dotted path `name`.

    Raises:
        UnknownName: no such verifier, extractor, module or function.
        TokenPOError: an option that this verifier does not read, or out of its range.
    """
    if ":" not in name and name not in VERIFIERS:
        remedy = f'{nearest(name, VERIFIERS)}, or give a function of yours as "package.module:function"'
        raise UnknownName(f"{task}: no verifier is called {name!r}: {remedy}")
    accepted = UserReward.accepts if ":" in name else VERIFIERS[name].accepts
    for option in fields(options):
        value = getattr(options, option.name)
        if value != option.default and option.name not in accepted:
            about = f"{option.name} = {value!r} means nothing to the verifier {name!r}"
            raise TokenPOError(f"{task}: {about}, which takes {', '.join(accepted)}: leave it out")
    if ":" in name:
        return UserReward(name, options.correct_at, options.reward_seconds, options.reward_errors)
    return VERIFIERS[name](options, task)


class Exact(TextVerifier):
    """Reward 1 where answer and reference are the same text, but for case, blanks and separators."""

    extract = "auto"

    def check(self, problems: list[Problem]) -> None:
        """Any reference will do."""

    def reference(self, problem: Problem) -> list[str]:
        """The accepted texts."""
        return [normalised(text) for text in references(problem.answer)]

    def judge(self, answer: str, reference: list[str]) -> Score:
        answer = normalised(answer)
        return Score(float(answer in reference), answer in reference, answer=answer)


class Math:
    r"""Reward 1 where the answer equals the reference by the conventions of `maths.conventions`, within a time limit.

    Notes: "no answer", "unreadable reference", "timeout", "crash" (the process died), "error: <exception>".
    """

    needs_answer, gives_away, reads_answers, source = True, True, True, ""
    accepts = ("extract", "verifier_seconds", "verifier_workers")

    def __init__(self, options: VerifierOptions, task: str) -> None:
        if find_spec("math_verify") is None:
            raise TokenPOError(f"{task}: the verifier 'math' needs math-verify: pip install 'tokenpo[tasks]'")
        self._find = extractor(options.extract or "whole", task).find
        seconds, workers = options.verifier_seconds, options.verifier_workers
        if workers < 0:
            raise TokenPOError(f"{task}: verifier_workers = {workers} must be 0 or more")
        if not 0 < seconds <= LONGEST:
            raise TokenPOError(f"{task}: verifier_seconds = {seconds} must be more than 0 and at most {LONGEST}")
        workers = workers or min(4, os.cpu_count() or 1)
        self._pool = Pool(Path(__file__).parent / "maths" / "equal.py", "equal", workers, seconds)

    def check(self, problems: list[Problem]) -> None:
        """Reads every reference once: warns of those that only a copy can equal, and refuses where all are such."""
        given = [(problem.place, text) for problem in problems for text in references(problem.answer)]
        doubtful = sorted({text for _, text in given if not _PLAIN.fullmatch(text)})
        outcomes = zip(doubtful, self._pool.map([([text], text, True) for text in doubtful]), strict=True)
        unreadable = {text for text, outcome in outcomes if outcome.note or not outcome.value[3]}
        places = [f"{place}: {text!r:.80}" for place, text in given if text in unreadable]
        if not places:
            return
        message = (
            f"math cannot read {len(places)} of {len(given)} references, of which only copies score: "
            f"{'; '.join(places[:3])}"
        )
        if len(places) == len(given):
            raise TokenPOError(f"{message}: name another column, or take the verifier 'exact'")
        warnings.warn(f"{message}: mend these rows or leave them out", stacklevel=4)

    def __call__(self, problems: list[Problem], completions: list[str], ids: list[list[int]]) -> list[Score]:
        answers = [self._answer(text) for text in completions]
        pairs = zip(problems, answers, strict=True)
        outcomes = iter(
            self._pool.map([(references(problem.answer), *answer) for problem, answer in pairs if answer[0]])
        )
        return [self._score(next(outcomes)) if answer else Score(0.0, False, "no answer") for answer, _ in answers]

    def close(self) -> None:
        """Kills the processes."""
        self._pool.close()

    def _answer(self, text: str) -> tuple[str, bool]:
        """The answer, "" for none, and whether a mark says where it stands; without one it is the whole text."""
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


VERIFIERS: Mapping[str, type[Exact | Math | Countdown | KnightsKnaves]] = MappingProxyType(
    {"exact": Exact, "math": Math, "countdown": Countdown, "knights_knaves": KnightsKnaves}
)


def checked(verifier: Verifier, problems: list[Problem]) -> list[Problem]:
    """The problems, after `verifier.check` has accepted them."""
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
