"""Means with their intervals as dots and bars over one axis, as inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from ..base.text import number
from .chart import ticks

ROW, MARGIN = 24, 14


@dataclass(frozen=True)
class Spot:
    """`colour` is a class of the style sheet; `points` are what it is the mean of, each with its title."""

    mean: float | None
    low: float | None
    high: float | None
    colour: str
    points: Sequence[tuple[float, str]] = ()


@dataclass(frozen=True)
class Axis:
    """From the first to the last of `marks`; `zero` draws a line at 0."""

    marks: tuple[float, ...]
    width: int
    zero: bool = False
    format: Callable[[float], str] = number

    @staticmethod
    def over(spots: Iterable[Spot], width: int) -> Axis:
        """Round numbers around all that the spots hold, and 0."""
        held = [x for spot in spots for x in (spot.low, spot.high, *(x for x, _ in spot.points)) if x is not None]
        return Axis(tuple(ticks(min([0.0, *held]), max([0.0, *held]), 4)), width, zero=True)

    def x(self, value: float) -> float:
        left, right = self.marks[0], self.marks[-1]
        share = min(max((value - left) / ((right - left) or 1.0), 0.0), 1.0)
        return MARGIN + share * (self.width - 2 * MARGIN)


def strip(spots: Sequence[Spot], axis: Axis, name: str, band: float | None = None) -> Markup:
    """The spots below each other; `name` is what a reader hears who cannot see them; `band` shades up to ± so much."""
    height = ROW * len(spots)
    parts = [f'<svg class="strip" viewBox="0 0 {axis.width} {height}" role="img" aria-label="{escape(name)}">']
    if band is not None:
        left, right = axis.x(-band), axis.x(band)
        parts.append(f'<rect class="band" x="{left:.1f}" width="{right - left:.1f}" height="{height}"/>')
    parts += [f'<path class="grid" d="M{axis.x(mark):.1f} 0V{height}"/>' for mark in axis.marks]
    if axis.zero:
        parts.append(f'<path class="zero" d="M{axis.x(0):.1f} 0V{height}"/>')
    for place, spot in enumerate(spots):
        y = ROW * (place + 0.5)
        parts += [
            f'<circle class="seed" cx="{axis.x(x):.1f}" cy="{y:g}" r="2.5"><title>{escape(title)}</title></circle>'
            for x, title in spot.points
        ]
        if spot.low is not None and spot.high is not None:
            ends = f"M{axis.x(spot.low):.1f} {y:g}H{axis.x(spot.high):.1f}"
            parts.append(f'<path class="whisker {spot.colour}" d="{ends}"/>')
        if spot.mean is not None:
            parts.append(f'<circle class="dot {spot.colour}" cx="{axis.x(spot.mean):.1f}" cy="{y:g}" r="5"/>')
    return Markup("".join(parts) + "</svg>")


def axis_labels(axis: Axis) -> Markup:
    """The numbers under a strip."""
    marks = (f'<text class="tick x" x="{axis.x(x):.1f}" y="11">{axis.format(x)}</text>' for x in axis.marks)
    return Markup(f'<svg class="strip" viewBox="0 0 {axis.width} 16" aria-hidden="true">{"".join(marks)}</svg>')
