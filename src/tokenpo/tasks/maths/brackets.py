r"""Brackets of LaTeX: what stands outside all of them, and what is inside one pair."""

from __future__ import annotations

import re
from collections.abc import Iterator

_DEEPEST = 40  # brackets within brackets
_OPENING = ("(", "[", "{", r"\{", r"\begin", r"\lfloor", r"\lceil")
_CLOSING = (")", "]", "}", r"\}", r"\end", r"\rfloor", r"\rceil")
_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|.", re.DOTALL)
_PAIR = re.compile(r"(\\\{)(.*)(\\\})|([(\[])(.*)([)\]])|(\{)(.*)(\})", re.DOTALL)


def levels(text: str) -> Iterator[tuple[int, int]]:
    """Where each token begins, and how many brackets are open after it."""
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += (token[0] in _OPENING) - (token[0] in _CLOSING)
        yield token.start(), depth


def is_balanced(text: str) -> bool:
    """Whether each bracket that is opened is closed, and not too many are open at once."""
    depths = [0, *(depth for _, depth in levels(text))]
    return min(depths) == 0 == depths[-1] and max(depths) <= _DEEPEST


def split(separator: re.Pattern[str], text: str) -> list[str]:
    """The text between what the pattern finds outside all brackets."""
    found, start = [], 0
    for place, depth in levels(text):
        if depth == 0 and place >= start and (match := separator.match(text, place)):
            found.append(text[start:place].strip())
            start = match.end()
    return [*found, text[start:].strip()]


def inside(text: str) -> tuple[str, str, str] | None:
    r"""Opening, inside and closing of a text that is one group in brackets; round and square ones may be mixed.

    >>> inside("[1, 2)"), inside("(1)(2)")
    (('[', '1, 2', ')'), None)
    """
    pair = _PAIR.fullmatch(text)
    if pair is None:
        return None
    opening, content, closing = (group for group in pair.groups() if group is not None)
    if any(depth == 0 and place < len(text) - len(closing) for place, depth in levels(text)):
        return None
    return opening, content.strip(), closing
