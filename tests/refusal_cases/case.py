"""A case: a request that an engine refuses, and its refusal."""

import re
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tokenpo
from tokenpo.base.errors import TokenPOError, Unsupported

SOURCE = Path(tokenpo.__file__).resolve().parent


@dataclass(frozen=True)
class Case:
    """A request that an engine cannot honour.

    Args:
        request: in a user's words, Markdown.
        ask: makes the request as a user does; given an empty directory.
        thing: words of the sentence: method and input, or the setting.
        remedy: of the sentence.
        error: its type.
        varying: a pattern of numbers that differ between machines; the page shows … instead.
    """

    request: str
    ask: Callable[[Path], object]
    thing: tuple[str, ...]
    remedy: str
    error: type[TokenPOError] = Unsupported
    varying: str | None = None


@dataclass(frozen=True)
class Refusal:
    """`place`: file under src/tokenpo and line of the statement that raised."""

    error: type[TokenPOError]
    sentence: str
    place: tuple[str, int]


def refusal(case: Case) -> Refusal:
    """
    Raises:
        AssertionError: nothing was refused.
    """
    try:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            case.ask(Path(directory))
    except TokenPOError as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if Path(frame.filename).resolve().is_relative_to(SOURCE)]
        place = Path(ours[-1].filename).resolve().relative_to(SOURCE).as_posix(), ours[-1].lineno or 0
        sentence = re.sub(case.varying, "…", str(error)) if case.varying else str(error)
        return Refusal(type(error), sentence, place)
    raise AssertionError(f"nothing was refused: {case.request}")
