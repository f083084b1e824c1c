"""Untrusted text and numbers for display: of limited length, without characters that are invisible or reorder text."""

from __future__ import annotations

import math
import unicodedata

_PICTURES = {"\n": "↵", "\r": "␍", "\t": "⇥", "\x7f": "␡"}


def visible(text: str, *, limit: int, spaces: bool = False) -> str:
    """`text` with control, bidirectional, unassigned and surrogate characters shown, cut after `limit` characters.

    `spaces` shows a blank as an open box, so that tokens that differ only in blanks look different.

    >>> visible("a\\u202eb\\x00", limit=10)
    'a⟨202E⟩b␀'
    >>> visible("aaaa", limit=2)
    'aa… (4 characters)'
    """
    shown = "".join(_show(c, spaces) for c in text[:limit])
    return shown if len(text) <= limit else f"{shown}… ({len(text):,} characters)"


def shortened(label: str, most: int = 80) -> str:
    """`visible` for a label; a longer one loses its middle, because labels of one method differ at their ends.

    >>> shortened("hapo:tau=0.5,beta=1", most=10)
    'hapo…eta=1'
    """
    half = most // 2
    return visible(label if len(label) <= most else f"{label[: half - 1]}…{label[-half:]}", limit=most)


def paragraph(text: str, *, limit: int) -> str:
    """`visible` for text that keeps its line breaks."""
    return "\n".join(visible(line, limit=limit) for line in text[:limit].replace("\r\n", "\n").split("\n")) + (
        f"… ({len(text):,} characters)" if len(text) > limit else ""
    )


def _show(c: str, spaces: bool) -> str:
    if c == " ":
        return "␣" if spaces else c
    if c.isascii() and c.isprintable():
        return c
    if c in _PICTURES:
        return _PICTURES[c]
    if ord(c) < 32:
        return chr(0x2400 + ord(c))
    # Cf has the characters that reorder or hide text, Zl and Zp break lines, and Cs cannot be encoded.
    if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Cn", "Co", "Zl", "Zp"):
        return f"⟨{ord(c):04X}⟩"
    return c


def percent(x: float | None, digits: int = 3) -> str:
    """A fraction as a percentage.

    >>> percent(0.98765), percent(1.0), percent(None)
    ('98.8 %', '100 %', '–')
    """
    return "–" if x is None or not math.isfinite(x) else f"{100 * x:.{digits}g} %"
