"""Where a method comes from, and what makes a builder a published method."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, ParamSpec

from ..errors import UnknownName, nearest
from ..objective import Objective

P = ParamSpec("P")


@dataclass(frozen=True)
class Paper:
    """The source of a method.

    Args:
        title: short title.
        arxiv: identifier.
        version: the version the formulas belong to, "" where one text serves all.
        provenance: "paper" read in its text, "code" read in the authors' or a framework's code, "second-hand" told by
            others, "reconstructed" inferred by us because the body could not be read.
        note: what the provenance leaves open.
    """

    title: str
    arxiv: str
    version: str
    provenance: Literal["paper", "code", "second-hand", "reconstructed", "second-hand + reconstructed"]
    note: str = ""

    @property
    def reference(self) -> str:
        return f"arXiv:{self.arxiv}{' ' + self.version if self.version else ''}"


def published(paper: Paper) -> Callable[[Callable[P, Objective]], Callable[P, Objective]]:
    """Marks a builder as a method of `paper`; its keywords are checked, and a wrong one names the nearest."""

    def mark(build: Callable[P, Objective]) -> Callable[P, Objective]:
        known = inspect.signature(build).parameters

        @functools.wraps(build)
        def checked(*args: P.args, **options: P.kwargs) -> Objective:
            check_options(build.__name__, options, known)
            return build(*args, **options)

        checked.paper = paper  # type: ignore[attr-defined]
        return checked

    return mark


def check_options(name: str, options: Iterable[str], known: Iterable[str]) -> None:
    """Refuses a keyword that a builder does not have.

    Raises:
        UnknownName: naming the method and the nearest keyword.
    """
    known = list(known)
    for option in options:
        if option not in known:
            raise UnknownName(f"method {name} has no option {option!r}; {nearest(option, known)}")
