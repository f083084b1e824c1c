"""The study in a terminal: methods x worlds, a table for each measure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from ...page.table import Cell, Row, Table
from ...page.terminal import print_parts
from ...page.text import visible
from . import study
from .catalogue import CATALOGUE, Measure, told


def show(rows: Sequence[study.Row], worlds: Sequence[str], measures: Iterable[str], stream: TextIO) -> None:
    """A table for each measure, and what it means."""
    parts: list[Table | str] = []
    for key in measures:
        parts += [of(rows, worlds, CATALOGUE[key]), CATALOGUE[key].meaning, ""]
    print_parts(parts, stream, least=24 + 11 * len(worlds))


def of(rows: Sequence[study.Row], worlds: Sequence[str], measure: Measure) -> Table:
    """One measure of all methods in all worlds."""
    # A name breaks between its words, so that twelve columns fit.
    head = ["method", *(world.replace("_", " ") for world in worlds)]
    body = [
        Row(visible(row.label, limit=60), list(_cells(row, worlds, measure)), apart=row.label == study.PERFECT)
        for row in rows
    ]
    return Table(head, body, title=measure.title)


def _cells(row: study.Row, worlds: Sequence[str], measure: Measure) -> Iterator[Cell]:
    for world in worlds:
        cell = row.cells.get(world)
        text, note = told(cell, measure) if cell else ("", "")
        yield Cell(text, note)
