"""The tables of an explanation, for terminal and page: one row of shares for each method, and how alike they push."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TextIO

from markupsafe import Markup

from ...base.text import number
from ...page.table import Cell, Row, Table
from ...page.terminal import print_parts
from ...page.text import percent, visible
from .shares import Shares

SHADES = 9  # of a cosine, the colours d0..d8 of the style sheet
COLUMNS = {
    "right": "right", "wrong": "wrong", "high": "high H", "low": "low H", "up": "up", "silent": "no push",
    "clipped": "clipped",
}  # fmt: skip


def show(tables: Sequence[Table], lines: Sequence[str], stream: TextIO) -> None:
    """Prints tables, and lines under them."""
    print_parts([*tables, *(visible(line, limit=1000) for line in lines)], stream)


def tables(
    title: str, labels: Sequence[str], tokens: Shares, shares: Sequence[Shares], cosines: Sequence[Sequence[float]]
) -> list[Table]:
    """Shares, of all tokens and of each method's push, and with several methods cosines."""
    names = [visible(label, limit=80) for label in labels]
    rows = [Row("(all tokens)", _cells(tokens), apart=True), *map(Row, names, map(_cells, shares))]
    result = [Table(["method", "size", *COLUMNS.values()], rows, visible(title, limit=200))]
    if len(names) > 1:
        rows = [
            Row(f"{place} {name}", [Cell(angle(x), kind=shade(x)) for x in row])
            for place, (name, row) in enumerate(zip(names, cosines, strict=True), start=1)
        ]
        result.append(Table(["method", *map(str, range(1, len(names) + 1))], rows, "cosine"))
    return result


def angle(x: float) -> str:
    """A cosine with three decimals; none where it is undefined.

    >>> angle(0.98765), angle(-0.5), angle(float("nan"))
    ('0.988', '−0.500', '–')
    """
    return "–" if math.isnan(x) else f"{x:.3f}".replace("-", "−")


def shade(cosine: float) -> str:
    """The class of a cosine: orange where two methods push apart, blue where they push alike.

    >>> shade(-1.0), shade(0.0), shade(1.0), shade(float("nan"))
    ('m0', 'm4', 'm8', 'mn')
    """
    return "mn" if math.isnan(cosine) else f"m{min(SHADES - 1, max(0, int((cosine + 1) / 2 * SHADES)))}"


def _cells(row: Shares) -> list[Cell]:
    """The size, and each share with a bar."""
    shares = [getattr(row, name) for name in COLUMNS]
    return [Cell(number(row.size)), *(Cell(percent(x), picture=_bar(x)) for x in shares)]


def _bar(share: float) -> Markup:
    if math.isnan(share):
        return Markup("")
    return Markup(
        '<svg class="share" viewBox="0 0 40 4" aria-hidden="true"><path class="ground" d="M0 2H40"/>'
        f'<path class="part" d="M0 2H{round(40 * share, 1)}"/></svg>'
    )
