"""One case, and what is said when it is asked."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tokenpo
from tokenpo.base.errors import TokenPOError, Unsupported

SOURCE = Path(tokenpo.__file__).resolve().parent


@dataclass(frozen=True)
class Case:
    """Something that an engine cannot honour.

    Args:
        asked: in a user's words, Markdown.
        ask: asks it the way a user does; given an empty directory.
        thing: what the sentence names: method and input where it is about one, else the setting.
        remedy: what the sentence says to do instead.
        error: that it is refused with.
        varying: a pattern of numbers that differ between machines; the page shows … in their place.
    """

    asked: str
    ask: Callable[[Path], object]
    thing: tuple[str, ...]
    remedy: str
    error: type[TokenPOError] = Unsupported
    varying: str | None = None


@dataclass(frozen=True)
class Said:
    """How a case was refused.

    Args:
        place: file under src/tokenpo and line of the statement that raised.
    """

    error: type[TokenPOError]
    sentence: str
    place: tuple[str, int]


def said(case: Case, directory: Path) -> Said:
    """Asks.

    Raises:
        AssertionError: nothing was refused.
    """
    try:
        case.ask(directory)
    except TokenPOError as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if Path(frame.filename).resolve().is_relative_to(SOURCE)]
        place = Path(ours[-1].filename).resolve().relative_to(SOURCE).as_posix(), ours[-1].lineno or 0
        sentence = re.sub(case.varying, "…", str(error)) if case.varying else str(error)
        return Said(type(error), sentence, place)
    raise AssertionError(f"nothing was refused: {case.asked}")


class Answers:
    """What was said to each case, each asked once in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, Said] = {}
        self._asked = 0

    def __call__(self, case: Case) -> Said:
        if case.asked not in self._known:
            self._asked += 1
            place = self._directory / str(self._asked)
            place.mkdir()
            self._known[case.asked] = said(case, place)
        return self._known[case.asked]
