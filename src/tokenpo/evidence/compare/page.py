"""compare.html: the comparison as one file that loads nothing, runs nothing and can be mailed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ...base.text import flat, number
from ...page import frame
from ...page.chart import Axis, Chart, Line, Spot, axis_labels, draw, strip
from ...page.table import Cell, Row, Table
from ...page.text import paragraph, visible
from . import table
from .result import Band, Comparison, Result
from .verdict import Pair

HERE = Path(__file__).parent
STRIP = 360  # width of its drawing


def render(comparison: Comparison) -> str:
    """The page as text. The same runs give the same bytes."""
    subject = comparison.subject
    return frame.render(
        HERE / "compare.html",
        visible(subject.title, limit=200),
        facts=_facts(comparison),
        summaries=[(visible(r.measure.title, limit=80), table.summary(r)) for r in comparison.results],
        notes=[visible(note, limit=1000) for note in comparison.notes],
        failures=[visible(f"{f.run.name}: {f.line}", limit=500) for f in comparison.failures],
        sections=[_section(comparison, result) for result in comparison.results],
        margins=any(pair.margin for result in comparison.results for pair in result.pairs),
        means=table.means(comparison),
        curves=list(_curves(comparison)),
        named=[(table.name(label), paragraph(text, limit=5000)) for label, text in subject.objectives.items()],
        origin=subject.origin,
        origins="\n".join(visible(line, limit=2000) for line in subject.origins),
        config=paragraph(json.dumps(subject.config, indent=2, ensure_ascii=False), limit=20_000),
        software=[(visible(str(k), limit=40), visible(str(v), limit=120)) for k, v in comparison.versions.items()],
    )


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    """(name, value) of the settings that all runs share."""
    subject, settings = comparison.subject, flat(comparison.subject.config)

    def count(path: str) -> int:
        return value if isinstance(value := settings.get(path), int) else 0

    steps, prompts, group = count("train.steps"), count("rollout.prompts"), count("rollout.group_size")
    problems = count("evaluate.problems")
    facts = [
        ("recipe", settings.get("recipe")),
        ("model", settings.get("model.path")),
        ("task", settings.get("task.name")),
        ("steps", steps and f"{steps:,}" + (f" of {prompts} prompts x {group} responses" if prompts and group else "")),
        ("updates per step", count("train.epochs") * count("train.minibatches")),
        ("seeds", _range(subject.seeds)),
        ("runs", f"{sum(map(len, comparison.finished.values()))} of {subject.planned}"),
        ("held-out problems", problems and f"{problems:,}"),
        ("baseline", "every pair" if comparison.baseline == "all" else comparison.baseline),
    ]
    return [(name, visible(str(text), limit=120)) for name, text in facts if text]


def _range(seeds: Sequence[int]) -> str:
    """Numbers that follow each other by their ends.

    >>> _range([0, 1, 2]), _range([0, 7])
    ('0 to 2', '0, 7')
    """
    if len(seeds) > 1 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _section(comparison: Comparison, result: Result) -> dict[str, Any]:
    """One measure: its differences, each with its strip and verdict, and the number of every seed."""
    spots, all_seeds = [_spot(pair) for pair in result.pairs], comparison.subject.seeds
    axis = Axis.over(spots, STRIP)
    rows = []
    for pair, spot in zip(result.pairs, spots, strict=True):
        label = f"difference {table.signed(pair.mean)}, 95 % interval {table.interval(pair) or 'none'}"
        picture = Cell("", picture=strip([spot], axis, label, band=pair.margin))
        rows.append(Row(table.pair_name(comparison, pair), [picture, *table.numbers(pair), _verdict(comparison, pair)]))
    seeds = []
    for label in comparison.subject.labels:
        numbers = result.numbers(label)
        spread = f"{number(min(numbers))} to {number(max(numbers))}" if numbers else ""
        texts = [*(_value(result, label, seed) for seed in all_seeds), spread]
        seeds.append(Row(table.name(label), [*map(Cell, texts)]))
    head, foot = [table.heading(comparison), "", *table.NUMBERS, "verdict"], [Cell("", picture=axis_labels(axis))]
    return {
        "title": visible(result.measure.title, limit=80),
        "meaning": visible(result.measure.meaning, limit=300),
        "differences": Table(head, rows, words=True, foot=foot),
        "seeds": Table(["method", *(f"seed {seed}" for seed in all_seeds), "range"], seeds),
    }


def _spot(pair: Pair) -> Spot:
    by_seed = zip(pair.seeds, pair.differences.values, strict=True)
    points = [(d, f"seed {seed}: {table.signed(d)}") for seed, d in by_seed if d is not None]
    return Spot(pair.mean, pair.low, pair.high, "c0" if pair.decided else "open", points)


def _verdict(comparison: Comparison, pair: Pair) -> Cell:
    """The verdict with its reason, without the sentences that stand at the top of the page for all pairs."""
    reason = pair.reason
    for note in comparison.notes:
        reason = reason.removeprefix(note).lstrip()
    return Cell(table.name(pair.verdict), reason, kind="decided" if pair.decided else "")


def _value(result: Result, label: str, seed: int) -> str:
    value = result.values[label].get(seed)
    if value is None:
        return "no run"
    return ("≥ " if value.censored else "") + number(value.number)


def _curves(comparison: Comparison) -> Iterator[tuple[str, list[tuple[Chart, Markup]]]]:
    """(title, charts): every method beside the baseline, mean over seeds, shaded from the lowest to the highest."""
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
                lines = [_line(label, bands[label], 0, dots), _line(base, bands[base], 1, dots)]
                chart = Chart(table.name(label), unit, "", lines, fraction=high is not None, high=high, always=True)
                charts.append((chart, draw(chart)))
        if charts:
            yield title, charts


def _line(label: str, band: Band, colour: int, dots: bool) -> Line:
    """The second line, the baseline's, is dashed."""
    points, span = [(step, mean) for step, mean, *_ in band], [(step, low, high) for step, _, low, high in band]
    return Line(table.name(label), points, colour, dashed=colour == 1, dots=dots, span=span, shaded=True)
