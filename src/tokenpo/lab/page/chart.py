"""Charts as inline SVG: lines over steps, and strips of means with intervals.

Colours come from the style sheet.
"""

import bisect
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_high

from markupsafe import Markup, escape

from ...base.text import number
from .text import percent

Point = tuple[float, float | None]
Band = tuple[float, float | None, float | None]
Place = Callable[[float], float]  # from a number to its pixel
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 400, 210, 46, 10, 8, 32
FOOT, END = HEIGHT - BOTTOM, WIDTH - RIGHT
MOST_POINTS, MOST_READINGS = 300, 60
STRIP, ROW, MARGIN = 360, 24, 14  # width, height and margin of a strip
_NICE = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)


@dataclass(frozen=True)
class Line:
    """A line of a chart: points (x, y or None), intervals `span` (x, low, high), a style class c0..c2."""

    label: str
    points: Sequence[Point]
    colour: int = 0
    dashed: bool = False
    dots: bool = False
    span: Sequence[Band] = ()
    shaded: bool = False  # draw the span as a shaded band rather than whiskers
    shade: str = ""  # meaning of the shaded span, for the legend

    @property
    def joined(self) -> bool:
        """Whether a line joins the dots; not between only two rare measurements, where it would suggest too much."""
        return not self.dots or len(self.points) > 2

    @property
    def constant(self) -> bool:
        """Whether all steps have the same value and span, up to rounding, or none; False for a single step."""
        rows = [[y for _, y in self.points], [low for _, low, _ in self.span], [high for _, _, high in self.span]]
        known = [[y for y in row if y is not None] for row in rows]
        return len(self.points) > 1 and all(
            not some or (len(some) == len(row) and math.isclose(min(some), max(some), rel_tol=1e-6))
            for some, row in zip(known, rows, strict=True)
        )


@dataclass(frozen=True)
class Chart:
    """A chart of lines over steps; its y axis includes `low` and `high`. `always` keeps a constant one in front."""

    title: str
    unit: str
    help: str
    lines: Sequence[Line] = ()
    fraction: bool = False
    low: float | None = 0.0
    high: float | None = None
    log: bool = False
    always: bool = False

    @property
    def constant(self) -> bool:
        return not self.always and all(line.constant for line in self.lines)

    @property
    def constant_text(self) -> str:
        """The value of a constant chart; with several lines, each label and value."""
        values = [self.format(line.points[0][1]) for line in self.lines]
        if len(values) == 1:
            return values[0]
        return ", ".join(f"{line.label} {value}" for line, value in zip(self.lines, values, strict=True))

    @property
    def format(self) -> Callable[..., str]:
        return percent if self.fraction else number


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
    """Round numbers from below `low` > 0 to above `high`: even steps, 1-2-5 or decades, by the ratio high / low.

    >>> log_ticks(0.93, 1.04), log_ticks(0.3, 4.0)
    ([0.9, 0.95, 1.0, 1.05], [0.2, 0.5, 1.0, 2.0, 5.0])
    """
    if math.isclose(low, high, rel_tol=1e-6):
        low, high = low / 2, high * 2
    # Up to this ratio even steps are at most `low` wide, so none is 0; above it a number of 1-2-5 lies between the two.
    if high <= 2.5 * low:
        return ticks(low, high, 4)
    bottom, top = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    if high < 100 * low:
        steps = [float(f"{m}e{e}") for e in range(bottom, top + 1) for m in (1, 2, 5)]
        return steps[bisect.bisect(steps, low * (1 + 1e-9)) - 1 : bisect.bisect_left(steps, high * (1 - 1e-9)) + 1]
    every = -(-(top - bottom) // 6)
    return [10.0**e for e in range(bottom, top + every, every)]


def nice(x: float) -> float:
    """The next number with few digits at or above `x`; 1 if x is not above 0.

    >>> nice(0.13), nice(0.0)
    (0.15, 1.0)
    """
    if x <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(x))
    return next(float(f"{m * power:.3g}") for m in _NICE if m * power >= x * (1 - 1e-9))


def scale(low: float, high: float, start: float, end: float, *, log: bool = False) -> Place:
    """A function from a number to its pixel, with `low` at `start` and `high` at `end`; numbers beyond are clamped."""

    def place(x: float) -> float:
        return math.log10(max(x, low)) if log else x

    first, width = place(low), (place(high) - place(low)) or 1.0
    return lambda x: start + min(max((place(x) - first) / width, 0.0), 1.0) * (end - start)


def draw(chart: Chart) -> Markup:
    """The chart as one <svg>; its accessible name states the first and last value of every line."""
    xs = [x for line in chart.lines for x, _ in line.points] or [0.0]
    values = [y for line in chart.lines for _, *ys in (*line.points, *line.span) for y in ys if y is not None]
    positive = [y for y in values if y > 0] or [1.0]
    values += [y for y in (chart.low, chart.high) if y is not None] or [0.0, 1.0] * (not values)
    marks = log_ticks(min(positive), max(positive)) if chart.log else ticks(min(values), max(values), 4)
    px = scale(min(xs), max(xs), LEFT, END)
    py = scale(marks[0], marks[-1], FOOT, TOP, log=chart.log)
    labels = _labels(marks, chart.format)
    columns = [(px(x), number(x)) for x in ticks(min(xs), max(xs), 6) if min(xs) <= x <= max(xs)]
    parts = [*_axes(_summary(chart), columns, zip(map(py, marks), labels, strict=True))]
    for line in reversed(chart.lines):  # the first line is drawn last, on top
        parts += _line(line, px, py)
    return Markup("".join([*parts, *_readings(chart, px)]) + "</svg>")


def _labels(marks: Sequence[float], written: Callable[[float, int], str]) -> list[str]:
    """The labels of an axis, with as many digits as make all of them different."""
    texts = [[written(mark, digits) for mark in marks] for digits in range(3, 9)]
    return next((some for some in texts if len(set(some)) == len(some)), texts[0])


def _axes(name: str, columns: Iterable[tuple[float, str]], rows: Iterable[tuple[float, str]]) -> Iterator[str]:
    """The start of an <svg> with both axes: `columns` and `rows` are (pixel, label)."""
    yield f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(name)}">'
    for y, label in rows:
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{END}"/>'
        yield f'<text class="tick y" x="{LEFT - 5}" y="{y + 3.5:.1f}">{escape(label)}</text>'
    for x, label in columns:
        yield f'<text class="tick x" x="{x:.1f}" y="{FOOT + 14}">{escape(label)}</text>'
    yield f'<text class="axis" x="{(WIDTH + LEFT - RIGHT) / 2:.0f}" y="{HEIGHT - 3}">step</text>'


def _line(line: Line, px: Place, py: Place) -> Iterator[str]:
    span = [(x, a, b) for x, a, b in line.span if a is not None and b is not None]
    if span and line.shaded and line.joined:
        kept = span[:: -(-len(span) // MOST_POINTS)]
        edge = [f"{px(x):.1f} {py(b):.1f}" for x, _, b in kept] + [f"{px(x):.1f} {py(a):.1f}" for x, a, _ in kept[::-1]]
        yield f'<path class="band c{line.colour}" d="M{"L".join(edge)}Z"/>'
    elif span:
        whiskers = "".join(f"M{px(x):.1f} {py(a):.1f}V{py(b):.1f}" for x, a, b in span)
        yield f'<path class="whisker c{line.colour}" d="{whiskers}"/>'
    for run in _unbroken(line.points) if line.joined else ():
        size, kept = -(-2 * len(run) // MOST_POINTS), run
        if size > 2:  # keep lowest and highest of each bin, in order, so that spikes remain visible
            bins = [run[i : i + size] for i in range(0, len(run), size)]
            ends = [{min(some, key=lambda p: p[1]), max(some, key=lambda p: p[1])} for some in bins]
            kept = [point for two in ends for point in sorted(two)]
        path = "L".join(f"{px(x):.1f} {py(y):.1f}" for x, y in kept)
        style = " dashed" if line.dashed else ""
        yield f'<path class="line c{line.colour}{style}" d="M{path}{"h.1" if len(run) == 1 else ""}"/>'
    if line.dots and len(line.points) <= MOST_READINGS:
        for x, y in line.points:
            if y is not None:
                yield f'<circle class="dot c{line.colour}" cx="{px(x):.1f}" cy="{py(y):.1f}" r="3"/>'


def _unbroken(points: Sequence[Point]) -> list[list[tuple[float, float]]]:
    """The runs of points without missing values; a gap wider than twice the usual distance counts as missing."""
    gaps = [b - a for (a, _), (b, _) in pairwise(points)]
    widest = 2 * median_high(gaps) if gaps else math.inf
    runs: list[list[tuple[float, float]]] = [[]]
    last = math.inf  # no gap before the first point
    for x, y in points:
        if y is None or x - last > widest:
            runs.append([])
        if y is not None:
            runs[-1].append((x, y))
        last = x
    return [run for run in runs if run]


def _readings(chart: Chart, px: Place) -> Iterator[str]:
    """A column for each step that shows its numbers while the pointer is over it, on the side with more room."""
    rows: dict[float, list[tuple[int, str]]] = defaultdict(list)
    for line in chart.lines:
        for x, y in line.points:
            rows[x].append((line.colour, f"{line.label} {chart.format(y)}"))
    sparse = {x for line in chart.lines if line.dots and len(line.points) <= MOST_READINGS for x, _ in line.points}
    steps = sorted({*sorted(rows)[:: max(1, -(-len(rows) // MOST_READINGS))], *sparse})
    middles = [px((a + b) / 2) for a, b in pairwise(steps)]
    for x, left, right in zip(steps, [LEFT - 6.0, *middles], [*middles, END + 6.0], strict=True):
        before = px(x) > (LEFT + END) / 2
        at = f'x="{px(x) + (-7 if before else 7):.1f}" dy="12.5"'
        text = [f'<tspan class="c{colour}" {at}>{escape(reading)}</tspan>' for colour, reading in rows[x]]
        yield (
            f'<g class="hit"><rect x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" height="{FOOT - TOP}"/>'
            f'<path d="M{px(x):.1f} {TOP}V{FOOT}"/><text{" class=before" if before else ""} y="{TOP}">'
            f"<tspan {at}>step {number(x)}</tspan>{''.join(text)}</text></g>"
        )


def _summary(chart: Chart) -> str:
    parts = []
    for line in chart.lines:
        known = [(x, y) for x, y in line.points if y is not None]
        ends = [f"{chart.format(y)} at step {number(x)}" for x, y in (*known[:1], *known[-1:])]
        parts += [f"{line.label} from {' to '.join(ends)}"] if ends else []
    return f"{chart.title} ({chart.unit}): " + ("; ".join(parts) or "no numbers")


@dataclass(frozen=True)
class Spot:
    """A mean with its interval; `colour` is a class of the style sheet, `points` are (value, title)."""

    mean: float | None
    low: float | None
    high: float | None
    colour: str
    points: Sequence[tuple[float, str]] = ()


def strip(spot: Spot, marks: Sequence[float], name: str, band: float | None = None) -> Markup:
    """A spot on an axis from the first to the last of `marks`; `name` is the accessible name; `band` shades ±band."""
    px = scale(marks[0], marks[-1], MARGIN, STRIP - MARGIN)
    parts = [f'<svg class="strip" viewBox="0 0 {STRIP} {ROW}" role="img" aria-label="{escape(name)}">']
    if band is not None:
        left, right = px(-band), px(band)
        parts.append(f'<rect class="band" x="{left:.1f}" width="{right - left:.1f}" height="{ROW}"/>')
    parts += [f'<path class="grid" d="M{px(mark):.1f} 0V{ROW}"/>' for mark in marks]
    parts.append(f'<path class="zero" d="M{px(0):.1f} 0V{ROW}"/>')
    y = f"{ROW / 2:g}"
    for x, title in spot.points:
        parts.append(f'<circle class="seed" cx="{px(x):.1f}" cy="{y}" r="2.5"><title>{escape(title)}</title></circle>')
    if spot.low is not None and spot.high is not None:
        parts.append(f'<path class="whisker {spot.colour}" d="M{px(spot.low):.1f} {y}H{px(spot.high):.1f}"/>')
    if spot.mean is not None:
        parts.append(f'<circle class="dot {spot.colour}" cx="{px(spot.mean):.1f}" cy="{y}" r="5"/>')
    return Markup("".join(parts) + "</svg>")


def strip_labels(marks: Sequence[float]) -> Markup:
    """The numbers under strips."""
    px = scale(marks[0], marks[-1], MARGIN, STRIP - MARGIN)
    texts = (f'<text class="tick x" x="{px(x):.1f}" y="11">{number(x)}</text>' for x in marks)
    return Markup(f'<svg class="strip" viewBox="0 0 {STRIP} 16" aria-hidden="true">{"".join(texts)}</svg>')
