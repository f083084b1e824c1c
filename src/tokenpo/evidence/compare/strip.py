"""The difference of a pair as a strip: every seed a dot, the mean with its interval, a line at zero."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup, escape

from ...base.text import number
from ..page.chart import ticks
from .verdict import Pair
from .words import interval, signed

WIDTH, HEIGHT, MARGIN = 260, 24, 10
Span = tuple[float, float, tuple[float, ...]]


def scale(pairs: Sequence[Pair]) -> Span:
    """(left end, right end, ticks) of the axis that all pairs of a measure share; it holds 0."""
    values = [0.0]
    for pair in pairs:
        values += [*pair.differences, *(end for end in (pair.low, pair.high) if end is not None)]
    marks = ticks(min(values), max(values), 4)
    return marks[0], marks[-1], tuple(marks)


def strip(pair: Pair, span: Span) -> Markup:
    """One pair."""
    name = f"difference {signed(pair.mean)}, 95 % interval {interval(pair) or 'none'}"
    colour = "c0" if pair.above is not None else "open"
    parts = [
        f'<svg class="strip" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(name)}">',
        *(f'<path class="grid" d="M{_x(mark, span):.1f} 0V{HEIGHT}"/>' for mark in span[2]),
        f'<path class="zero" d="M{_x(0, span):.1f} 0V{HEIGHT}"/>',
        *(
            f'<circle class="seed" cx="{_x(d, span):.1f}" cy="{HEIGHT / 2:g}" r="2.5"><title>seed {seed}: '
            f"{signed(d)}</title></circle>"
            for seed, d in zip(pair.seeds, pair.differences, strict=True)
        ),
    ]
    if pair.low is not None and pair.high is not None and pair.mean is not None:
        ends = f"M{_x(pair.low, span):.1f} {HEIGHT / 2:g}H{_x(pair.high, span):.1f}"
        parts.append(f'<path class="whisker {colour}" d="{ends}"/>')
        parts.append(f'<circle class="dot {colour}" cx="{_x(pair.mean, span):.1f}" cy="{HEIGHT / 2:g}" r="5"/>')
    return Markup("".join(parts) + "</svg>")


def axis(span: Span) -> Markup:
    """The numbers under the strips."""
    marks = "".join(f'<text class="tick x" x="{_x(mark, span):.1f}" y="11">{number(mark)}</text>' for mark in span[2])
    return Markup(f'<svg class="strip" viewBox="0 0 {WIDTH} 16" aria-hidden="true">{marks}</svg>')


def _x(value: float, span: Span) -> float:
    left, right, _ = span
    return MARGIN + (value - left) / ((right - left) or 1.0) * (WIDTH - 2 * MARGIN)
