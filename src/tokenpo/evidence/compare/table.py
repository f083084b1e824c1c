"""The comparison in the terminal: means, then one table of differences per measure, then what to know of them."""

from __future__ import annotations

from typing import TextIO

from rich.table import Table
from rich.text import Text

from ...base.console import Console
from ..page.text import visible
from . import words
from .result import Comparison, Result

WIDTH = 120  # of lines that no terminal limits


def show(comparison: Comparison, stream: TextIO) -> None:
    """Prints it."""
    console = Console(stream, highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    console.print(_means(comparison))
    for result in comparison.results:
        console.print(_differences(comparison, result))
    for result in comparison.results:
        console.print(Text(f"{result.measure.title}: {words.summary(result)}"))
    for note in comparison.notes:
        console.print(Text(f"note: {visible(note, limit=1000)}"))


def _means(comparison: Comparison) -> Table:
    table = Table(title=Text(f"{visible(comparison.title, limit=200)}: means over seeds"), title_justify="left")
    table.add_column("method")
    table.add_column("runs", justify="right")
    for result in comparison.results:
        unit = f", {result.measure.unit}" if result.measure.unit not in ("", "steps", "fraction") else ""
        table.add_column(Text(result.measure.title + unit), justify="right")
    for label in comparison.plan.labels:
        cells = [words.mean(result, label) for result in comparison.results]
        table.add_row(*map(Text, (words.name(label), str(len(comparison.finished[label])), *cells)))
    return table


def _differences(comparison: Comparison, result: Result) -> Table:
    table = Table(title=Text(f"{result.measure.title}: {result.measure.meaning}"), title_justify="left")
    table.add_column(words.heading(comparison))
    for heading in ("difference", "95 % interval", "p", "p, Holm"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for pair in result.pairs:
        cells = (words.signed(pair.mean), words.interval(pair), words.p_value(pair.p), words.p_value(pair.adjusted))
        table.add_row(*map(Text, (words.pair_name(comparison, pair), *cells, pair.short)))
    return table
