"""A table as a value: `print_parts` prints it in a terminal, `table.html` sets it on a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from markupsafe import Markup

WIDTH = 120  # of lines that no terminal limits


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


def print_parts(parts: Iterable[Table | str], stream: TextIO, *, framed: bool = True, least: int = 0) -> None:
    """Tables and lines below each other, at least `least` characters wide."""
    from rich import table  # a page needs no rich
    from rich.text import Text

    from ..base.console import Console

    def drawn(part: Table) -> table.Table:
        made = table.Table(title=Text(part.title) if part.title else None, title_justify="left")
        if not framed:
            made.box, made.pad_edge, made.padding = None, False, (0, 3, 0, 0)
        for place, heading in enumerate(part.head):
            left = place == 0 or (part.words and place == len(part.head) - 1)
            made.add_column(Text(heading), justify="left" if left else "right", no_wrap=not framed)
        for row in part.rows:
            cells = [
                Text.assemble((f"{x.text}\n", "bold"), (x.note, "dim")) if x.note else Text(x.text) for x in row.cells
            ]
            made.add_row(Text(row.name), *cells, style="dim" if row.apart else None, end_section=row.apart)
        return made

    console = Console(stream, highlight=False)
    console.width = max(console.width if console.is_terminal else WIDTH, least)
    for part in parts:
        console.print(Text(part) if isinstance(part, str) else drawn(part))
