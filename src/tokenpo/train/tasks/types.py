"""The protocol of verifiable tasks: problems by position, and a score for each completion."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from ...base.errors import TokenPOError
from .extract import opening

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Problem:
    """One problem.

    Args:
        prompt: plain text, or chat messages `[{"role": ..., "content": ...}]`.
        answer: the reference, of the type that the task's verifier reads.
        columns: every column of its data row, for the user's reward functions.
        place: of that row, such as "train.jsonl line 3"; "" for a generated problem.
        rendered: the end of the prompt as the model's chat template wrote it; "" if unknown.
    """

    prompt: str | list[dict[str, Any]]
    answer: Any
    columns: Mapping[str, Any] = field(default_factory=dict)
    place: str = field(default="", compare=False)
    rendered: str = field(default="", compare=False)

    def opened(self, completion: str) -> str:
        """The completion, after the mark of thinking that the prompt leaves open."""
        return opening(self.rendered or (self.prompt if isinstance(self.prompt, str) else "")) + completion

    @property
    def reference(self) -> str | None:
        """The answer as text for people; None where there is none."""
        return None if self.answer is None else str(self.answer)


@dataclass(frozen=True)
class Turn:
    """One turn of a completion: the tokens sampled up to a tool's answer, or to the end.

    Args:
        reward: arrives with the turn's last token.
        state: the state in which it began; among completions of one problem equal texts are equal states.
    """

    reward: float
    state: str


@dataclass(frozen=True)
class Score:
    """The verdict on one completion.

    Args:
        reward: finite; the policy is trained on it.
        correct: whether accuracy counts the completion as right.
        note: "", or the kind of failure, for counting: "timeout", "crash", "no answer", ...
        answer: as the verifier read it, in the form that a majority vote counts; None if it read none.
        rewards: of several reward functions by name, the same names for every completion; `reward` combines them.
        turns: of a task with a tool, in order; their rewards add up to `reward`.
    """

    reward: float
    correct: bool
    note: str = ""
    answer: str | None = field(default=None, compare=False)
    rewards: Mapping[str, float] | None = field(default=None, compare=False)
    turns: tuple[Turn, ...] = field(default=(), compare=False)


@runtime_checkable
class Task(Protocol):
    """A seeded order of problems with random access, and their verifier.

    A task whose test split is finite has an int attribute `test_size` too (None: unknown).
    """

    @property
    def name(self) -> str: ...

    def problems(self, split: Split, start: int, count: int) -> list[Problem]:
        """The `count` problems from position `start` on: a pure function of (task, seed, split, position).

        No problem of the test split occurs in the train split. A finite train split repeats in another order; a test
        split gives no problem twice and raises TokenPOError at its end.
        """
        ...

    def score(self, problems: list[Problem], completions: list[str], completion_ids: list[list[int]]) -> list[Score]:
        """One score per completion; `problems[i]` is the problem that `completions[i]` answers."""
        ...

    def close(self) -> None:
        """Ends the verifier's processes; a closed task can't score."""


@runtime_checkable
class ToolTask(Task, Protocol):
    """A task whose completions call a tool; the tool's answer is inserted while they are sampled."""

    calls: str  # the text that ends a call

    def reply(self, problem: Problem, completion: str) -> str | None:
        """The tool's answer to an unfinished completion that ends with `calls`; None if that call is not valid."""
        ...


class Verifier:
    """Scores completions against `Problem.answer`."""

    needs_answer = True  # every problem needs a reference answer
    gives_away = True  # a prompt that shows the reference gives the answer away
    reads_answers = True  # scores hold the answer that was read
    source: str = ""  # hash of a user's function, see `UserReward`
    accepts: tuple[str, ...] = ()  # names of the options that it reads

    def check(self, problems: list[Problem]) -> None:
        """Raises TokenPOError or warns, before a run, if no answer to a problem could be judged."""

    def __call__(self, problems: list[Problem], completions: list[str], ids: list[list[int]]) -> list[Score]:
        raise NotImplementedError

    def close(self) -> None:
        """Ends its processes."""


def require_held_out(task: str, size: int, count: int) -> None:
    """Raises TokenPOError if `count` exceeds the `size` of a test split: repeats would make intervals too narrow."""
    if count > size:
        remedy = "ask for fewer (evaluate.problems, --problems)"
        raise TokenPOError(f"{task} has {size} held-out problems, not the {count} asked for: {remedy}")
