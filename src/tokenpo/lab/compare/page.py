"""A comparison for its readers: tables in the terminal, and the page compare.html."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from markupsafe import Markup

from ...base.text import flat, number
from ..page import frame
from ..page.chart import Chart, Line, Spot, draw, strip, strip_labels, ticks
from ..page.text import Cell, Row, Table, paragraph, print_parts, shortened, visible
from .result import Comparison, Measure, Result
from .verdict import Pair

ROUNDING = 1e-12
NUMBERS = ("difference", "95 % interval", "p", "p, Holm")


def show(comparison: Comparison, stream: TextIO) -> None:
    """Prints the verdicts, one table of every pair by every measure, then notes."""
    verdicts, rows = defaultdict(list), []
    for result in comparison.results:
        verdicts[summary(result)].append(result.measure.title)
        for pair in result.pairs:
            measure = result.measure.name if pair is result.pairs[0] else ""
            both = " − ".join(number(result.mean(label)) for label in (pair.a, pair.b))
            difference, ends, _, p = numbers(pair)
            cells = [
                f"{shortened(pair.a)} − {shortened(pair.b)}",
                both,
                difference.text,
                ends.text,
                p.text,
                pair.verdict,
            ]
            rows.append(Row(measure, [*map(Cell, cells)]))
    lines = [f"{', '.join(titles)}: {words}" for words, titles in verdicts.items()]
    head = ["measure", "methods", "means", "difference", "95 % interval", "p, Holm", "verdict"]
    notes = [f"note: {visible(note, limit=1000)}" for note in comparison.notes]
    print_parts([*lines, Table(head, rows, visible(comparison.subject.title, limit=200), words=True), *notes], stream)


def means(comparison: Comparison) -> Table:
    head, subject = ["method", "runs"], comparison.subject
    head += [titled(result.measure) for result in comparison.results]
    rows = [
        Row(
            shortened(label),
            [
                Cell(str(len(comparison.finished[label]))),
                *(Cell(number(result.mean(label))) for result in comparison.results),
            ],
        )
        for label in subject.labels
    ]
    return Table(head, rows, f"{visible(subject.title, limit=200)}: means over seeds")


def titled(measure: Measure) -> str:
    """The measure's title and unit."""
    unit = f", {measure.unit}" if measure.unit not in ("", "fraction") else ""
    return visible(measure.title + unit, limit=80)


def numbers(pair: Pair) -> list[Cell]:
    return [*map(Cell, (signed(pair.mean), interval(pair), p_value(pair.p), p_value(pair.adjusted)))]


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


def summary(result: Result) -> str:
    """All verdicts of one measure in a line; pairs without a decision are counted."""
    phrases = []
    for pair in result.pairs:
        if pair.decided:
            phrase = f"{pair.a} and {pair.b} {pair.verdict}" if pair.larger is None else pair.verdict
            phrases.append(visible(phrase, limit=1000))
    for verdict, count in Counter(pair.verdict for pair in result.pairs if not pair.decided).items():
        every = f"all {count} pairs" if count == len(result.pairs) else str(count)
        phrases.append(verdict if len(result.pairs) == 1 else f"{every} {verdict}")
    return "; ".join(phrases)


def pair_name(comparison: Comparison, pair: Pair) -> str:
    """The name of a pair's row; a common baseline is not repeated."""
    return f"{shortened(pair.a)} − {shortened(pair.b)}" if comparison.baseline == "all" else shortened(pair.a)


def heading(comparison: Comparison) -> str:
    return "pair" if comparison.baseline == "all" else f"method − {shortened(comparison.baseline)}"


HERE = Path(__file__).parent


def render(comparison: Comparison) -> str:
    """The page as text. Equal runs give equal bytes."""
    subject = comparison.subject
    return frame.render(
        HERE / "compare.html", visible(subject.title, limit=200), facts=_facts(comparison),
        summaries=[(visible(r.measure.title, limit=80), summary(r)) for r in comparison.results],
        notes=[visible(note, limit=1000) for note in comparison.notes],
        failures=[visible(f"{f.run.name}: {f.line}", limit=500) for f in comparison.failures],
        sections=[_section(comparison, result) for result in comparison.results],
        margins=any(pair.margin for result in comparison.results for pair in result.pairs), means=means(comparison),
        curves=list(_curves(comparison)),
        named=[(shortened(label), paragraph(text, limit=5000)) for label, text in subject.objectives.items()],
        config=paragraph(json.dumps(subject.config, indent=2, ensure_ascii=False), limit=20_000),
        software=[(visible(str(k), limit=40), visible(str(v), limit=120)) for k, v in comparison.versions.items()],
    )  # fmt: skip


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    """(name, value) of what all runs share."""
    subject, settings = comparison.subject, flat(comparison.subject.config)
    places = {"recipe": "recipe", "model": "model.path", "task": "task.name", "steps": "train.steps"}
    facts = {name: settings.get(place) for name, place in places.items()}
    facts["seeds"] = ", ".join(map(str, subject.seeds))
    facts["runs"] = f"{sum(map(len, comparison.finished.values()))} of {subject.planned}"
    facts["baseline"] = "every pair" if comparison.baseline == "all" else comparison.baseline
    return [(name, visible(str(text), limit=120)) for name, text in facts.items() if text]


def _section(comparison: Comparison, result: Result) -> dict[str, Any]:
    """One measure: its differences, each with a strip and a verdict."""
    spots = [_spot(pair) for pair in result.pairs]
    ends = [x for spot in spots for x in (spot.low, spot.high, *(x for x, _ in spot.points)) if x is not None]
    marks = ticks(min([0.0, *ends]), max([0.0, *ends]), 4)
    rows = []
    for pair, spot in zip(result.pairs, spots, strict=True):
        label = f"difference {signed(pair.mean)}, 95 % interval {interval(pair) or 'none'}"
        picture = Cell("", picture=strip(spot, marks, label, band=pair.margin))
        reason = pair.reason
        for note in comparison.notes:  # do not repeat a note from the top of the page
            reason = reason.removeprefix(note).lstrip()
        verdict = Cell(visible(pair.verdict, limit=1000), reason, kind="decided" if pair.decided else "")
        rows.append(Row(pair_name(comparison, pair), [picture, *numbers(pair), verdict]))
    head, foot = [heading(comparison), "", *NUMBERS, "verdict"], [Cell("", picture=strip_labels(marks))]
    return {
        "title": visible(result.measure.title, limit=80),
        "meaning": visible(result.measure.meaning, limit=300),
        "differences": Table(head, rows, words=True, foot=foot),
    }


def _spot(pair: Pair) -> Spot:
    by_seed = zip(pair.seeds, pair.differences, strict=True)
    points = [(d, f"seed {seed}: {signed(d)}") for seed, d in by_seed]
    return Spot(pair.mean, pair.low, pair.high, "c0" if pair.decided else "open", points)


def _curves(comparison: Comparison) -> Iterator[tuple[str, list[tuple[Chart, Markup]]]]:
    """(title, charts): every method with the baseline, mean over seeds, shaded from the lowest to the highest."""
    labels = comparison.subject.labels
    base = labels[0] if comparison.baseline == "all" else comparison.baseline
    for metric, title, unit, high in (
        ("eval/accuracy", "Held-out accuracy", "greedy", 1.0),
        ("accuracy", "Training accuracy", "sampled", 1.0),
        ("entropy", "Entropy", "nats per token", None),
    ):
        bands, dots, charts = comparison.bands[metric], metric.startswith("eval/"), []
        for label in labels:
            if label != base and bands[label]:
                lines = [  # the baseline's is dashed
                    Line(
                        shortened(of), [(step, mean) for step, mean, *_ in bands[of]], k, dashed=k == 1, dots=dots,
                        span=[(step, low, high) for step, _, low, high in bands[of]], shaded=True,
                    )
                    for k, of in enumerate((label, base))
                ]  # fmt: skip
                chart = Chart(shortened(label), unit, "", lines, fraction=high is not None, high=high, always=True)
                charts.append((chart, draw(chart)))
        if charts:
            yield title, charts
