"""Held-out problems, none of them twice."""

from __future__ import annotations

from collections.abc import Callable

from ..base.errors import TokenPOError
from .types import Problem


def require_held_out(task: str, size: int, count: int) -> None:
    """Raises TokenPOError where `count` exceeds the `size` of a test split: repeats would narrow an interval."""
    if count > size:
        raise TokenPOError(
            f"{task} has {size} held-out problems, not the {count} asked for: ask for fewer (evaluate.problems, "
            "--problems)"
        )


class Different:
    """The problems of an endless order, each prompt once.

    Args:
        draw: the problem at a position of the order.
        repeats: draws in a row without a new prompt, after which the search ends.
        task: name and options, for messages.
    """

    def __init__(self, draw: Callable[[int], Problem], repeats: int, task: str) -> None:
        self._draw, self._repeats, self._task = draw, repeats, task
        self._problems: dict[str, Problem] = {}  # by prompt; every evaluation takes the same ones
        self._position = 0

    def first(self, count: int) -> list[Problem]:
        """The first `count` problems.

        Raises:
            TokenPOError: fewer different ones were found.
        """
        in_vain = 0
        while len(self._problems) < count and in_vain < self._repeats:
            problem = self._draw(self._position)
            self._position += 1
            in_vain = in_vain + 1 if repr(problem.prompt) in self._problems else 0
            self._problems.setdefault(repr(problem.prompt), problem)
        if len(self._problems) < count:
            raise TokenPOError(
                f"{self._task} has {len(self._problems)} different held-out problems in {self._position} draws, not "
                f"the {count} asked for: ask for fewer (evaluate.problems, --problems) or widen these options"
            )
        return list(self._problems.values())[:count]
