"""Where the answer stands in a completion: one function per convention, each the text or None."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..base.errors import UnknownName, nearest

_BOX = re.compile(r"\\boxed\s*\{")  # LaTeX takes blanks before the brace


@dataclass(frozen=True)
class Extractor:
    """`find(text)` is the stripped answer or None; `instruction` asks a model to answer in this way."""

    find: Callable[[str], str | None]
    instruction: str


def tag(text: str) -> str | None:
    """What the last `<answer>...</answer>` holds.

    >>> tag("<answer>1</answer> no: <answer> 2 </answer>")
    '2'
    """
    before, close, _ = text.rpartition("</answer>")
    _, opening, inside = before.rpartition("<answer>")
    return inside.strip() or None if close and opening else None


def boxed(text: str) -> str | None:
    r"""What the last `\boxed{...}` holds, braces balanced.

    >>> boxed(r"so \boxed{\frac{1}{2}}.")
    '\\frac{1}{2}'
    """
    start = len(text)
    for box in _BOX.finditer(text):
        start = box.end()
    rest, depth = text[start:], 1
    for position, character in enumerate(rest):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return rest[:position].strip() or None
    return None


def hash_mark(text: str, mark: str = "#") -> str | None:
    """The rest of the line after the last `#` (so `#7` and `#### 7` alike).

    >>> hash_mark("3+4=7 #### 7")
    '7'
    """
    _, separator, rest = text.rpartition(mark)
    return rest.strip().split("\n")[0].strip() or None if separator else None


def last_line(text: str) -> str | None:
    """The last line that isn't blank."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else None


def auto(text: str) -> str | None:
    r"""The first of these that is there: the last `\boxed{}`, the last `<answer>` tag, what follows the last `####`."""
    return boxed(text) or tag(text) or hash_mark(text, "####")


def whole(text: str) -> str | None:
    """All of it."""
    return text.strip() or None


EXTRACTORS: Mapping[str, Extractor] = MappingProxyType(
    {
        "tag": Extractor(tag, "Think step by step, then give the final answer alone between <answer> and </answer>."),
        "boxed": Extractor(boxed, r"Think step by step, then give the final answer alone in \boxed{}."),
        "hash": Extractor(
            hash_mark, "Think step by step, then end with a line that holds # and the final answer alone."
        ),
        "last_line": Extractor(last_line, "Think step by step, then give the final answer alone on the last line."),
        "auto": Extractor(auto, r"Think step by step, then give the final answer alone in \boxed{}."),
        "whole": Extractor(whole, "Answer with the final answer alone."),
    }
)


def extractor(name: str, task: str) -> Extractor:
    """The extractor called `name`.

    Raises:
        UnknownName: there is none; the message names the nearest.
    """
    if name not in EXTRACTORS:
        raise UnknownName(f"{task}: no extractor is called {name!r} (option extract): {nearest(name, EXTRACTORS)}")
    return EXTRACTORS[name]
