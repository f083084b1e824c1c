"""The tables of a comparison for terminal and page, and the format of its numbers and verdicts."""

from __future__ import annotations

import math
from collections import Counter
from typing import TextIO

from ...base.text import number
from ..page.table import Cell, Row, Table, print_parts
from ..page.text import shortened, visible
from .result import Comparison, Result
from .verdict import Pair

ROUNDING = 1e-12
NUMBERS = ("difference", "95 % interval", "p", "p, Holm")


def show(comparison: Comparison, stream: TextIO) -> None:
    """Prints the verdicts, the means, a table of differences for each measure, then notes."""
    tables = [means(comparison)]
    for result in comparison.results:
        rows = [Row(pair_name(comparison, pair), [*numbers(pair), Cell(pair.short)]) for pair in result.pairs]
        title = f"{result.measure.title}: {result.measure.meaning}"
        tables.append(Table([heading(comparison), *NUMBERS, "verdict"], rows, title, words=True))
    lines = [f"{result.measure.title}: {summary(result)}" for result in comparison.results]
    notes = [f"note: {visible(note, limit=1000)}" for note in comparison.notes]
    print_parts([*lines, *tables, *notes], stream)


def means(comparison: Comparison) -> Table:
    head, subject = ["method", "runs"], comparison.subject
    for measure in (result.measure for result in comparison.results):
        unit = f", {measure.unit}" if measure.unit not in ("", "steps", "fraction") else ""
        head.append(visible(measure.title + unit, limit=80))
    rows = [
        Row(
            name(label),
            [Cell(str(len(comparison.finished[label]))), *(Cell(mean(result, label)) for result in comparison.results)],
        )
        for label in subject.labels
    ]
    return Table(head, rows, f"{visible(subject.title, limit=200)}: means over seeds")


def numbers(pair: Pair) -> list[Cell]:
    """The cells under `NUMBERS`."""
    of = f" ({len(pair.differences.known)} of {len(pair.seeds)})" if pair.differences.bounded else ""
    return [*map(Cell, (signed(pair.mean) + of, interval(pair), p_value(pair.p), p_value(pair.adjusted)))]


def name(label: str) -> str:
    return shortened(label)


def signed(x: float | None) -> str:
    """Three significant digits with a sign; rounding errors of differences that cancel become 0.

    >>> signed(0.0214), signed(-3.0), signed(0.0), signed(1.1e-17), signed(None)
    ('+0.0214', '−3', '0', '0', '–')
    """
    if x is None or not math.isfinite(x):
        return number(x)
    if abs(x) < ROUNDING:
        return "0"
    return ("+" if x > 0 else "−") + number(abs(x))


def interval(pair: Pair) -> str:
    return "" if pair.low is None else f"{signed(pair.low)} to {signed(pair.high)}"


def p_value(p: float | None) -> str:
    """Two significant digits.

    >>> p_value(0.001953125), p_value(1.0)
    ('0.002', '1')
    """
    return "–" if p is None else f"{p:.2g}"


def mean(result: Result, label: str) -> str:
    """The mean over seeds; with "≥" if runs that never got there make it a lower bound."""
    late, text = result.censored(label), number(result.mean(label))
    return f"≥ {text} ({late} never)" if late else text


def summary(result: Result) -> str:
    """All verdicts of one measure in a line; pairs without a decision are counted."""
    phrases = []
    for pair in result.pairs:
        if pair.decided:
            phrase = f"{pair.a} and {pair.b} {pair.verdict}" if pair.above is None else pair.verdict
            phrases.append(visible(phrase, limit=1000))
    for verdict, count in Counter(pair.verdict for pair in result.pairs if not pair.decided).items():
        every = f"all {count} pairs" if count == len(result.pairs) else str(count)
        phrases.append(verdict if len(result.pairs) == 1 else f"{every} {verdict}")
    return "; ".join(phrases)


def pair_name(comparison: Comparison, pair: Pair) -> str:
    """The name of a pair's row; a common baseline is not repeated."""
    return f"{name(pair.a)} − {name(pair.b)}" if comparison.baseline == "all" else name(pair.a)


def heading(comparison: Comparison) -> str:
    return "pair" if comparison.baseline == "all" else f"method − {name(comparison.baseline)}"
