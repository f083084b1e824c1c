"""Tables and lines in a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

import rich.table
from rich.text import Text

from ..base.console import Console
from .table import Cell, Table

WIDTH = 120  # of lines that no terminal limits


def print_parts(parts: Iterable[Table | str], stream: TextIO, *, framed: bool = True, least: int = 0) -> None:
    """Tables and lines below each other, at least `least` characters wide."""
    console = Console(stream, highlight=False)
    console.width = max(console.width if console.is_terminal else WIDTH, least)
    for part in parts:
        console.print(Text(part) if isinstance(part, str) else _drawn(part, framed))


def _drawn(table: Table, framed: bool) -> rich.table.Table:
    drawn = rich.table.Table(title=Text(table.title) if table.title else None, title_justify="left")
    if not framed:
        drawn.box, drawn.pad_edge, drawn.padding = None, False, (0, 3, 0, 0)
    last = len(table.head) - 1
    for place, heading in enumerate(table.head):
        left = place == 0 or (table.words and place == last)
        drawn.add_column(Text(heading), justify="left" if left else "right", no_wrap=not framed)
    for row in table.rows:
        style = "dim" if row.apart else None
        drawn.add_row(Text(row.name), *map(_text, row.cells), style=style, end_section=row.apart)
    return drawn


def _text(cell: Cell) -> Text:
    return Text.assemble((f"{cell.text}\n", "bold"), (cell.note, "dim")) if cell.note else Text(cell.text)
