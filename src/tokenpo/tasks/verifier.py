"""What a verifier is, its options, and the frame of those that compare one extracted text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ..base.errors import TokenPOError
from .extract import extractor
from .types import Problem, Score


class Verifier(Protocol):
    """Scores completions against `Problem.answer`.

    Attributes:
        needs_answer: every problem needs a reference answer.
        gives_away: a prompt that shows the reference gives the answer away.
        reads_answers: scores hold the answer that was read; else `Score.answer` is always None.
        source: hash of a user's function, see `UserReward`; "" for ours.
    """

    needs_answer: bool
    gives_away: bool
    reads_answers: bool
    source: str

    def check(self, problems: list[Problem]) -> None:
        """Before a run: raises TokenPOError or warns where no answer to a problem could be judged."""
        ...

    def __call__(self, problems: list[Problem], completions: list[str], ids: list[list[int]]) -> list[Score]:
        """One score per completion."""
        ...

    def close(self) -> None:
        """Ends its processes."""
        ...


@dataclass(frozen=True)
class VerifierOptions:
    """Options of the task `files`, which documents them; each verifier accepts some and refuses the others."""

    extract: str = ""
    correct_at: float = 1.0
    verifier_seconds: float = 5.0
    verifier_workers: int = 0
    reward_seconds: float = 300.0
    reward_errors: str = "stop"


class TextVerifier:
    """Extracts one answer from each completion and judges it in this process.

    A subclass has `extract`, the name of its default extractor, `reference` and `judge`.
    """

    needs_answer, gives_away, reads_answers, source = True, True, True, ""
    accepts = ("extract",)
    extract = "tag"

    def __init__(self, options: VerifierOptions, task: str) -> None:
        self._find = extractor(options.extract or self.extract, task).find

    def reference(self, problem: Problem) -> Any:
        """The reference answer, parsed; raises TokenPOError where it cannot be."""
        raise NotImplementedError

    def judge(self, answer: str, reference: Any) -> Score:
        """The verdict on an extracted answer; notes: "malformed"."""
        raise NotImplementedError

    def check(self, problems: list[Problem]) -> None:
        """Parses every reference; an error names the row."""
        for problem in problems:
            try:
                self.reference(problem)
            except TokenPOError as error:
                raise type(error)(f"{problem.place}: {error}") from error

    def __call__(self, problems: list[Problem], completions: list[str], ids: list[list[int]]) -> list[Score]:
        """Notes: "no answer", and those of `judge`."""
        pairs = zip(map(self.reference, problems), map(self._find, completions), strict=True)
        return [
            self.judge(answer, gold) if answer is not None else Score(0.0, False, "no answer") for gold, answer in pairs
        ]

    def close(self) -> None:
        """Nothing to end."""
