"""The answers in a terminal: sentences, then for each measure a table of methods x worlds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

from ...base.text import number
from ..page import table
from ..page.table import Cell, Table, print_parts
from ..page.text import visible
from .measures import MEASURES, Number

BASE, PERFECT = "dapo", "perfect credit"
Results = Mapping[str, Mapping[str, Mapping[str, Number]]]  # method -> world -> measure


def show(results: Results, worlds: Sequence[str], stream: TextIO) -> None:
    """Prints the verdicts and the tables; spaces in place of underscores let the names of worlds wrap."""
    head = ["method", *(world.replace("_", " ") for world in worlds)]
    parts: list[Table | str] = [*verdicts(results, worlds), ""]
    for key, meaning in MEASURES.items():
        rows = [
            table.Row(visible(label, limit=60), [_cell(found[w][key]) for w in worlds], apart=label in (BASE, PERFECT))
            for label, found in results.items()
        ]
        parts += [Table(head, rows, title=key), meaning, ""]
    print_parts(parts, stream)


def verdicts(results: Results, worlds: Sequence[str]) -> Iterator[str]:
    """Sentences: in how many worlds each method is above and below DAPO by two standard errors, by measure."""
    for label, found in results.items():
        if label in (BASE, PERFECT):
            continue
        told = []
        for key in MEASURES:
            signs = [_sign(found[world][key], results[BASE][world][key]) for world in worlds]
            told.append(f"{key} above in {signs.count(1)} and below in {signs.count(-1)}")
        many = f"{len(worlds)} world{'s' * (len(worlds) > 1)}"
        yield f"{visible(label, limit=60)} beside DAPO, in {many}: {'; '.join(told)}."


def _sign(x: Number, base: Number) -> int:
    far = abs(x.value - base.value) > max(2 * math.hypot(x.error, base.error), 1e-4)
    return (1 if x.value > base.value else -1) if far else 0


def _cell(x: Number) -> Cell:
    return Cell(number(round(x.value, 3) + 0.0), f"±{number(round(x.error, 6), 2)}")
