"""What a verifiable task is: problems by position, and a score for each completion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

Split = Literal["train", "test"]


@dataclass(frozen=True)
class Problem:
    """One problem.

    Args:
        prompt: plain text, or chat messages `[{"role": ..., "content": ...}]` for the model's chat template.
        answer: the reference answer, of whatever type the task's verifier reads.
        columns: every column of its data row, for reward functions of the user.
        place: of that row, as "train.jsonl line 3", for messages; "" for a generated problem.
    """

    prompt: str | list[dict[str, Any]]
    answer: Any
    columns: Mapping[str, Any] = field(default_factory=dict)
    place: str = field(default="", compare=False)

    @property
    def reference(self) -> str | None:
        """The answer as text for people; None where there is none."""
        return None if self.answer is None else str(self.answer)


@dataclass(frozen=True)
class Turn:
    """One turn of a completion: what was sampled up to a tool's answer, or to the end.

    Args:
        reward: arrives with the turn's last token.
        state: where it began: equal texts are equal states, among the completions of one problem.
    """

    reward: float
    state: str


@dataclass(frozen=True)
class Score:
    """The verdict on one completion.

    Args:
        reward: finite; what the policy is trained on.
        correct: what accuracy counts.
        note: "" or what went wrong, short enough to count by: "timeout", "crash", "no answer", ...
        answer: as the verifier read it, in the form that a majority vote counts; None where it read none.
        rewards: of several reward functions by name, the same names for every completion; `reward` is made of them.
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
    def name(self) -> str:
        """The task's name in messages."""
        ...

    def problems(self, split: Split, start: int, count: int) -> list[Problem]:
        """The `count` problems from position `start` on: a pure function of (task, seed, split, position).

        No problem of the test split occurs in the train split. A finite train split comes again in another order; a
        test split gives no problem twice and raises TokenPOError at its end.
        """
        ...

    def score(self, problems: list[Problem], completions: list[str], completion_ids: list[list[int]]) -> list[Score]:
        """One score per completion; `problems[i]` is the problem that `completions[i]` answers."""
        ...

    def close(self) -> None:
        """Ends the verifier's processes; a closed task can't score."""
        ...


@runtime_checkable
class ToolTask(Task, Protocol):
    """A task whose completions call a tool; the tool's answer is inserted while they are sampled.

    Attributes:
        calls: the text that ends a call.
    """

    calls: str

    def reply(self, problem: Problem, completion: str) -> str | None:
        """The tool's answer to a completion so far that ends with `calls`; None where that is no call."""
        ...
