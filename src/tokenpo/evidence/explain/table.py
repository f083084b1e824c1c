"""The explanation in the terminal: one row of shares for each method, then how alike they push."""

from __future__ import annotations

import math
from typing import TextIO

from rich.table import Table
from rich.text import Text

from ...base.console import Console
from ...base.text import number
from ..page.text import percent, visible
from .result import Explanation
from .shares import Shares

WIDTH = 120  # of lines that no terminal limits
COLUMNS = (
    ("right", "right"), ("wrong", "wrong"), ("high", "high H"), ("low", "low H"), ("up", "up"), ("silent", "no push"),
    ("clipped", "clipped"),
)  # fmt: skip


def show(result: Explanation, stream: TextIO) -> None:
    """Prints it."""
    console = Console(stream, highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    console.print(_shares(result))
    if len(result.methods) > 1:
        console.print(_cosines(result))
    for line in (*legend(result), *(f"note: {note}" for note in result.notes)):
        console.print(Text(visible(line, limit=1000)))


def legend(result: Explanation) -> list[str]:
    """What the columns mean."""
    lines = [
        "push = −M ∂L/∂lp of a token, M = all response tokens; size: mean |push|; then the share of Σ|push| on tokens "
        "of right and wrong responses, of high and low entropy H, and on tokens pushed up; no push, clipped: share of "
        "the tokens."
    ]
    if len(result.methods) > 1:
        lines.append("cosine: of the pushes of two methods as vectors over all tokens; 1 is the same direction.")
    if result.kinds.threshold is not None:
        nats = number(result.kinds.threshold)
        lines.append(f"High H: at or above the {result.quantile:g} quantile of the entropy, {nats} nats.")
    return lines


def cells(row: Shares) -> list[str]:
    """One row of the table, but for its name."""
    return [number(row.size), *(percent(getattr(row, name)) for name, _ in COLUMNS)]


def angle(x: float) -> str:
    """A cosine with three decimals; none where it is undefined.

    >>> angle(0.98765), angle(-0.5), angle(float("nan"))
    ('0.988', '−0.500', '–')
    """
    return "–" if math.isnan(x) else f"{x:.3f}".replace("-", "−")


def _shares(result: Explanation) -> Table:
    table = Table(title=Text(visible(result.title, limit=200)), title_justify="left")
    table.add_column("method")
    for heading in ("size", *(heading for _, heading in COLUMNS)):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row("(all tokens)", *map(Text, cells(result.tokens)), style="dim", end_section=True)
    for label, row in zip(result.labels, result.table, strict=True):
        table.add_row(*map(Text, (visible(label, limit=80), *cells(row))))
    return table


def _cosines(result: Explanation) -> Table:
    table = Table(title="cosine", title_justify="left")
    table.add_column("method")
    for place in range(len(result.labels)):
        table.add_column(str(place + 1), justify="right", no_wrap=True)
    for place, (label, row) in enumerate(zip(result.labels, result.cosines, strict=True)):
        table.add_row(*map(Text, (f"{place + 1} {visible(label, limit=80)}", *map(angle, row))))
    return table
