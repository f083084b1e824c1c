"""Held-out problems, none of them twice: of a generated task each prompt once, and never more than there are."""

from __future__ import annotations

from collections.abc import Callable

from ..base.errors import TokenPOError
from .types import Problem


def require_held_out(task: str, size: int, count: int) -> None:
    """Refuses to give the first `count` of `size` held-out problems where these are fewer.

    Training goes through its problems again; an accuracy over repeated ones would look surer than it is.

    Args:
        task: what the message calls it.

    Raises:
        TokenPOError: fewer than `count` are there.
    """
    if count > size:
        raise TokenPOError(
            f"{task} has {size} held-out problems, not the {count} asked for: ask for fewer (evaluate.problems, "
            "--problems)"
        )


class Different:
    """Problems in the order in which they are drawn, without those whose prompt came before.

    A repeated problem tells nothing, and counted as another it would narrow an interval.

    Args:
        draw: the problem at a position of an endless order.
        repeats: draws in a row without a new prompt, after which the search ends.
        task: what messages call it, with its options.
    """

    def __init__(self, draw: Callable[[int], Problem], repeats: int, task: str) -> None:
        self._draw, self._repeats, self._task = draw, repeats, task
        self._problems: list[Problem] = []
        self._prompts: set[str] = set()
        self._position = 0

    def first(self, count: int) -> list[Problem]:
        """The first `count`; kept, as every evaluation asks for the same ones.

        Raises:
            TokenPOError: fewer different ones were found.
        """
        in_vain = 0
        while len(self._problems) < count and in_vain < self._repeats:
            problem = self._draw(self._position)
            self._position += 1
            in_vain += 1
            if repr(problem.prompt) not in self._prompts:
                self._prompts.add(repr(problem.prompt))
                self._problems.append(problem)
                in_vain = 0
        if len(self._problems) < count:
            raise TokenPOError(
                f"{self._task} has {len(self._problems)} different held-out problems in {self._position} draws, not "
                f"the {count} asked for: ask for fewer (evaluate.problems, --problems) or widen these options"
            )
        return self._problems[:count]
