"""Untrusted text for display, of limited length and without invisible or reordering characters; and tables."""

from __future__ import annotations

import math
import os
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from markupsafe import Markup

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


WIDTH = 120  # characters of a line if no terminal limits it


@dataclass(frozen=True)
class Cell:
    """A cell; `note` is below the text. Only pages show `picture`, before the text, and use the style class `kind`."""

    text: str
    note: str = ""
    picture: Markup = Markup("")
    kind: str = ""


@dataclass(frozen=True)
class Row:
    """A row; `apart` if the other rows are compared with it."""

    name: str
    cells: Sequence[Cell]
    apart: bool = False


@dataclass(frozen=True)
class Table:
    """A table; `words`: the last column is aligned left; `foot`: cells below the columns, without the names."""

    head: Sequence[str]
    rows: Sequence[Row]
    title: str = ""
    words: bool = False
    foot: Sequence[Cell] = ()


def print_parts(parts: Iterable[Table | str], stream: TextIO, *, framed: bool = True) -> None:
    """Prints tables and lines; a table that is too wide wraps its words."""
    from rich import table  # a page needs no rich
    from rich.text import Text

    from ...base.terminal import Console

    console = Console(stream, highlight=False)
    width = console.width = console.width if console.is_terminal or "COLUMNS" in os.environ else WIDTH
    for part in parts:
        if isinstance(part, str):
            console.print(Text(part))
            continue
        printed = table.Table(title=Text(part.title) if part.title else None, title_justify="left")
        if not framed:
            printed.box, printed.pad_edge, printed.padding = None, False, (0, 3, 0, 0)
        for place, (heading, most) in enumerate(zip(part.head, _widths(part, width), strict=True)):
            left = place == 0 or (part.words and place == len(part.head) - 1)
            printed.add_column(Text(heading), justify="left" if left else "right", width=most)
        for row in part.rows:
            cells = [
                Text.assemble((f"{x.text}\n", "bold"), (x.note, "dim")) if x.note else Text(x.text) for x in row.cells
            ]
            printed.add_row(Text(row.name), *cells, style="dim" if row.apart else None, end_section=row.apart)
        console.print(printed)


def _longest(part: Table, place: int, split: Callable[[str], list[str]]) -> int:
    """Number of characters of the longest word (or line, by `split`) in a column."""
    cells = [Cell(row.name) if place == 0 else row.cells[place - 1] for row in part.rows]
    texts = [part.head[place], *(text for cell in cells for text in (cell.text, cell.note))]
    return max((len(word) for text in texts for word in split(text)), default=0)


def _widths(part: Table, width: int) -> list[int]:
    """Column widths: the longest word of each, and more where that ends the wrapping."""
    places = range(len(part.head))
    widths = [_longest(part, place, str.split) for place in places]
    spare = width - 1 - sum(3 + least for least in widths)
    missing = {place: _longest(part, place, str.splitlines) - widths[place] for place in places}
    for place in sorted(missing, key=missing.__getitem__):
        more = max(0, min(spare, missing[place]))
        widths[place], spare = widths[place] + more, spare - more
    return widths
