"""A table as a value: `terminal.py` prints it, `table.html` sets it on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Cell:
    """`note` stands below the text; `picture` before it and the style class `kind` are the page's alone."""

    text: str
    note: str = ""
    picture: Markup = Markup("")
    kind: str = ""


@dataclass(frozen=True)
class Row:
    """`apart` where it is what the other rows are compared with."""

    name: str
    cells: Sequence[Cell]
    apart: bool = False


@dataclass(frozen=True)
class Table:
    """`head` begins with the heading of the names; the last column is set at the left where it holds `words`."""

    head: Sequence[str]
    rows: Sequence[Row]
    title: str = ""
    words: bool = False
    foot: Sequence[Cell] = ()
