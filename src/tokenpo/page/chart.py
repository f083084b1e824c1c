"""Charts as inline SVG: lines over steps, and strips of means with their intervals.

Colours come from the page's style sheet, so they follow light and dark.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from ..base.text import number
from .text import percent

Point = tuple[float, float | None]
Band = tuple[float, float | None, float | None]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 400, 210, 46, 10, 8, 32
MOST_POINTS, MOST_READINGS = 300, 60
ROW, MARGIN = 24, 14  # of a strip
_NICE = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)


@dataclass(frozen=True)
class Line:
    """`points` (x, y), y None where nothing was measured; `colour` is the class c0..c5 of the style sheet."""

    label: str
    points: Sequence[Point]
    colour: int = 0
    dashed: bool = False
    dots: bool = False
    span: Sequence[Band] = ()
    shaded: bool = False  # the span as a shaded band, else as whiskers
    shade: str = ""  # what the shaded span holds, for the legend

    @property
    def joined(self) -> bool:
        """Dots are measurements now and then; a line between only two of them would claim too much."""
        return not self.dots or len(self.points) > 2

    @property
    def constant(self) -> bool:
        """One number at every step, the span's ends too; a single step is too short to tell."""
        rows = [[y for _, y in self.points], [low for _, low, _ in self.span], [high for _, _, high in self.span]]
        return len(self.points) > 1 and all(_same(row) for row in rows)


@dataclass(frozen=True)
class Chart:
    """`unit` labels the y axis; `low`/`high` are limits that the axis includes; `fraction` shows percentages.

    `always` keeps a chart among the first even if nothing moves in it, because that is news.
    """

    title: str
    unit: str
    help: str
    lines: Sequence[Line] = ()
    fraction: bool = False
    low: float | None = 0.0
    high: float | None = None
    log: bool = False
    stacked: bool = False
    always: bool = False

    @property
    def constant(self) -> bool:
        return not self.always and all(line.constant for line in self.lines)

    @property
    def constant_text(self) -> str:
        """A constant chart in words: its value, or with several lines each one's."""
        ends = [(line.label, self.format(line.points[0][1])) for line in self.lines]
        return ends[0][1] if len(ends) == 1 else ", ".join(f"{label} {value}" for label, value in ends)

    @property
    def format(self) -> Callable[..., str]:
        return percent if self.fraction else number


def _same(values: Sequence[float | None]) -> bool:
    """All one number, to rounding, or none at all; a gap among numbers is a difference."""
    known = [y for y in values if y is not None]
    return not known or (len(known) == len(values) and math.isclose(min(known), max(known), rel_tol=1e-6))


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten) from at or below `low` to at or above `high`.

    >>> ticks(0.0, 0.93)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / count))
    step = next(power * m for m in (1, 2, 5, 10) if power * m * count >= span * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, max(last, first + 1) + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers around `low` > 0 to `high`: evenly spaced ones, 1-2-5 or decades, by how far apart the two are.

    >>> log_ticks(0.93, 1.04), log_ticks(0.3, 4.0)
    ([0.9, 0.95, 1.0, 1.05], [0.2, 0.5, 1.0, 2.0, 5.0])
    """
    if math.isclose(low, high, rel_tol=1e-6):
        low, high = low / 2, high * 2
    # Up to this ratio no even step is wider than `low`, so none of them is 0; beyond it one of 1-2-5 lies between.
    if high <= 2.5 * low:
        return ticks(low, high, 4)
    bottom, top = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    if high < 100 * low:
        steps = [float(f"{m}e{e}") for e in range(bottom, top + 1) for m in (1, 2, 5)]
        return steps[bisect.bisect(steps, low * (1 + 1e-9)) - 1 : bisect.bisect_left(steps, high * (1 - 1e-9)) + 1]
    every = -(-(top - bottom) // 6)
    return [10.0**e for e in range(bottom, top + every, every)]


def nice(x: float) -> float:
    """The next number at or above `x` that is short to read; 1 for nothing.

    >>> nice(0.13), nice(0.0)
    (0.15, 1.0)
    """
    if x <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(x))
    return next(float(f"{m * power:.3g}") for m in _NICE if m * power >= x * (1 - 1e-9))


def scale(low: float, high: float, start: float, end: float, *, log: bool = False) -> Callable[[float], float]:
    """From a number to its pixel: `low` at `start`, `high` at `end`, and nothing beyond them."""

    def place(x: float) -> float:
        return math.log10(max(x, 1e-12)) if log else x

    first, width = place(low), (place(high) - place(low)) or 1.0
    return lambda x: start + min(max((place(x) - first) / width, 0.0), 1.0) * (end - start)


def draw(chart: Chart) -> Markup:
    """The chart as one <svg>; its accessible name says where every line starts and ends."""
    xs = [x for line in chart.lines for x, _ in line.points] or [0.0]
    x_low, x_high = min(xs), max(xs)
    layers = _layers(chart.lines) if chart.stacked else chart.lines
    y_ticks = _y_ticks(chart, layers)
    px = scale(x_low, x_high, LEFT, WIDTH - RIGHT)
    py = scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP, log=chart.log)
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(_summary(chart))}">']
    for y, label in zip(y_ticks, _distinct_labels(chart, y_ticks), strict=True):
        parts.append(f'<path class="grid" d="M{LEFT} {py(y):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick y" x="{LEFT - 5}" y="{py(y) + 3.5:.1f}">{escape(label)}</text>')
    for x in [t for t in ticks(x_low, x_high, 6) if x_low <= t <= x_high]:
        parts.append(f'<text class="tick x" x="{px(x):.1f}" y="{HEIGHT - BOTTOM + 14}">{number(x)}</text>')
    parts.append(f'<text class="axis" x="{(WIDTH + LEFT - RIGHT) / 2:.0f}" y="{HEIGHT - 3}">step</text>')
    for line in [*layers][::-1]:  # the first line ends on top
        parts += _line(line, px, py, chart.stacked)
    parts += _readings(chart, px)
    return Markup("".join(parts) + "</svg>")


def _y_ticks(chart: Chart, lines: Sequence[Line]) -> list[float]:
    values = [y for line in lines for _, y in line.points if y is not None]
    values += [y for line in lines for _, *ends in line.span for y in ends if y is not None]
    if chart.log:
        positive = [y for y in values if y > 0] or [1.0]
        return log_ticks(min(positive), max(positive))
    values += [y for y in (chart.low, chart.high) if y is not None]
    return ticks(min(values, default=0.0), max(values, default=1.0), 4)


def _distinct_labels(chart: Chart, values: Sequence[float]) -> list[str]:
    """The numbers as texts, with as many digits as it takes for no two to read the same."""
    texts = ([chart.format(y, digits) for y in values] for digits in range(3, 9))
    return next((labels for labels in texts if len(set(labels)) == len(labels)), [chart.format(y) for y in values])


def _layers(lines: Sequence[Line]) -> list[Line]:
    """Each line raised by those before it, its span reaching down to them."""
    base: dict[float, float] = {}
    raised = []
    for line in lines:
        floor = dict(base)
        for x, y in line.points:
            base[x] = base.get(x, 0.0) + (y or 0.0)
        span = [(x, floor.get(x, 0.0), base[x]) for x, _ in line.points]
        raised.append(Line(line.label, [(x, base[x]) for x, _ in line.points], line.colour, span=span, shaded=True))
    return raised


def _line(line: Line, px: Callable, py: Callable, solid: bool) -> list[str]:
    parts = []
    span = [(x, a, b) for x, a, b in line.span if a is not None and b is not None]
    if span and line.shaded and line.joined:
        kept = span[:: -(-len(span) // MOST_POINTS)]
        edge = [f"{px(x):.1f} {py(b):.1f}" for x, _, b in kept] + [f"{px(x):.1f} {py(a):.1f}" for x, a, _ in kept[::-1]]
        parts.append(f'<path class="band c{line.colour}{" solid" if solid else ""}" d="M{"L".join(edge)}Z"/>')
    elif span:
        whiskers = "".join(f"M{px(x):.1f} {py(a):.1f}V{py(b):.1f}" for x, a, b in span)
        parts.append(f'<path class="whisker c{line.colour}" d="{whiskers}"/>')
    for run in _unbroken(line.points) if line.joined else ():
        path = "L".join(f"{px(x):.1f} {py(y):.1f}" for x, y in _thinned(run))
        style = " dashed" if line.dashed else ""
        parts.append(f'<path class="line c{line.colour}{style}" d="M{path}{"h.1" if len(run) == 1 else ""}"/>')
    if line.dots and len(line.points) <= MOST_READINGS:
        spots = [(px(x), py(y)) for x, y in line.points if y is not None]
        parts += [f'<circle class="dot c{line.colour}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in spots]
    return parts


def _unbroken(points: Sequence[Point]) -> list[list[tuple[float, float]]]:
    """The stretches between missing values; a gap wider than twice the usual distance counts as missing."""
    gaps = sorted(b - a for (a, _), (b, _) in pairwise(points))
    widest = 2 * gaps[len(gaps) // 2] if gaps else math.inf
    runs: list[list[tuple[float, float]]] = [[]]
    last = None
    for x, y in points:
        if y is None or (last is not None and x - last > widest):
            runs.append([])
        if y is not None:
            runs[-1].append((x, y))
        last = x
    return [run for run in runs if run]


def _thinned(run: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Lowest and highest of each bin, in order: a spike survives any thinning."""
    size = -(-2 * len(run) // MOST_POINTS)
    if size < 3:
        return run
    kept: list[tuple[float, float]] = []
    for i in range(0, len(run), size):
        window = run[i : i + size]
        kept += sorted({min(window, key=lambda p: p[1]), max(window, key=lambda p: p[1])})
    return kept


def _readings(chart: Chart, px: Callable) -> list[str]:
    """A column for each step, which shows its numbers under the pointer, on the side with more room."""
    rows: dict[float, list[tuple[str, str]]] = {}
    for line in chart.lines:
        for x, y in line.points:
            rows.setdefault(x, []).append((f"c{line.colour}", f"{line.label} {chart.format(y)}"))
    sparse = {x for line in chart.lines if line.dots and len(line.points) <= MOST_READINGS for x, _ in line.points}
    steps = sorted({*sorted(rows)[:: max(1, -(-len(rows) // MOST_READINGS))], *sparse})
    middles = [px((a + b) / 2) for a, b in pairwise(steps)]
    parts, foot = [], HEIGHT - BOTTOM
    for x, left, right in zip(steps, [LEFT - 6.0, *middles], [*middles, WIDTH - RIGHT + 6.0], strict=True):
        before = px(x) > (LEFT + WIDTH - RIGHT) / 2
        at = f'x="{px(x) + (-7 if before else 7):.1f}" dy="12.5"'
        text = [f"<tspan {at}>step {number(x)}</tspan>"]
        text += [f'<tspan class="{colour}" {at}>{escape(line)}</tspan>' for colour, line in rows[x]]
        parts.append(
            f'<g class="hit"><rect x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{foot - TOP}"/>'
            f'<path d="M{px(x):.1f} {TOP}V{foot}"/>'
            f'<text{" class=before" if before else ""} y="{TOP}">{"".join(text)}</text></g>'
        )
    return parts


def _summary(chart: Chart) -> str:
    parts = []
    for line in chart.lines:
        ends = [(x, y) for x, y in line.points if y is not None]
        if ends:
            (a, first), (b, last) = ends[0], ends[-1]
            start, end = f"{chart.format(first)} at step {number(a)}", f"{chart.format(last)} at step {number(b)}"
            parts.append(f"{line.label} from {start} to {end}")
    return f"{chart.title} ({chart.unit}): " + ("; ".join(parts) or "no numbers")


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

    @property
    def x(self) -> Callable[[float], float]:
        return scale(self.marks[0], self.marks[-1], MARGIN, self.width - MARGIN)


def strip(spots: Sequence[Spot], axis: Axis, name: str, band: float | None = None) -> Markup:
    """The spots below each other; `name` is the accessible one; `band` shades from −band to band."""
    height, px = ROW * len(spots), axis.x
    parts = [f'<svg class="strip" viewBox="0 0 {axis.width} {height}" role="img" aria-label="{escape(name)}">']
    if band is not None:
        left, right = px(-band), px(band)
        parts.append(f'<rect class="band" x="{left:.1f}" width="{right - left:.1f}" height="{height}"/>')
    parts += [f'<path class="grid" d="M{px(mark):.1f} 0V{height}"/>' for mark in axis.marks]
    if axis.zero:
        parts.append(f'<path class="zero" d="M{px(0):.1f} 0V{height}"/>')
    for place, spot in enumerate(spots):
        y = ROW * (place + 0.5)
        parts += [
            f'<circle class="seed" cx="{px(x):.1f}" cy="{y:g}" r="2.5"><title>{escape(title)}</title></circle>'
            for x, title in spot.points
        ]
        if spot.low is not None and spot.high is not None:
            ends = f"M{px(spot.low):.1f} {y:g}H{px(spot.high):.1f}"
            parts.append(f'<path class="whisker {spot.colour}" d="{ends}"/>')
        if spot.mean is not None:
            parts.append(f'<circle class="dot {spot.colour}" cx="{px(spot.mean):.1f}" cy="{y:g}" r="5"/>')
    return Markup("".join(parts) + "</svg>")


def axis_labels(axis: Axis) -> Markup:
    """The numbers under a strip."""
    marks = (f'<text class="tick x" x="{axis.x(x):.1f}" y="11">{axis.format(x)}</text>' for x in axis.marks)
    return Markup(f'<svg class="strip" viewBox="0 0 {axis.width} 16" aria-hidden="true">{"".join(marks)}</svg>')
