"""The tables of an explanation, for terminal and page: one row of shares for each method, and how alike they push."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TextIO

from markupsafe import Markup

from ...base.text import number
from ..page.table import Cell, Row, Table
from ..page.terminal import print_parts
from ..page.text import percent, visible
from .explanation import Explanation
from .push import Shares

SHADES = 9  # of a cosine, the colours d0..d8 of the style sheet
COLUMNS = (
    ("right", "right"), ("wrong", "wrong"), ("high", "high H"), ("low", "low H"), ("up", "up"), ("silent", "no push"),
    ("clipped", "clipped"),
)  # fmt: skip


def show(result: Explanation, stream: TextIO) -> None:
    """Prints it."""
    lines = [*legend(result), *(f"note: {note}" for note in result.notes)]
    print_parts([*tables(result), *(visible(line, limit=1000) for line in lines)], stream)


def tables(result: Explanation) -> list[Table]:
    """Shares, and with several methods cosines."""
    names = [visible(label, limit=80) for label in result.labels]
    rows = [Row("(all tokens)", _cells(result.tokens), apart=True)]
    rows += [Row(name, _cells(row)) for name, row in zip(names, result.table, strict=True)]
    head = ["method", "size", *(heading for _, heading in COLUMNS)]
    made = [Table(head, rows, visible(result.title, limit=200))]
    if len(names) > 1:
        numbers = [str(place) for place in range(1, len(names) + 1)]
        rows = [
            Row(f"{place} {name}", [Cell(angle(x), kind=shade(x)) for x in row])
            for place, name, row in zip(numbers, names, result.cosines, strict=True)
        ]
        made.append(Table(["method", *numbers], rows, "cosine"))
    return made


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


def _cells(row: Shares) -> Sequence[Cell]:
    """The size, and each share with a bar."""
    shares = [getattr(row, name) for name, _ in COLUMNS]
    return [Cell(number(row.size)), *(Cell(percent(x), picture=_bar(x)) for x in shares)]


def _bar(share: float) -> Markup:
    if math.isnan(share):
        return Markup("")
    return Markup(
        '<svg class="share" viewBox="0 0 40 4" aria-hidden="true"><path class="ground" d="M0 2H40"/>'
        f'<path class="part" d="M0 2H{round(40 * share, 1)}"/></svg>'
    )
