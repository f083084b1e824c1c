"""compare.html: the comparison as one file that loads nothing, runs nothing and can be mailed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ...base.text import number
from ..page import frame
from ..page.chart import Chart, Line, draw
from ..page.strip import Axis, Spot, axis_labels, strip
from ..page.table import Cell, Row, Table
from ..page.text import paragraph, visible
from . import table
from .paired import Pair
from .result import Comparison, Result, SeedBand

HERE = Path(__file__).parent
STRIP = 360  # width of its drawing


def render(comparison: Comparison) -> str:
    """The page as text. The same runs give the same bytes."""
    plan = comparison.plan
    return frame.render(
        HERE / "compare.html",
        visible(comparison.title, limit=200),
        facts=_facts(comparison),
        summaries=[(visible(r.measure.title, limit=80), table.summary(r)) for r in comparison.results],
        notes=[visible(note, limit=1000) for note in comparison.notes],
        failures=[visible(f"{f.run.name}: {f.line}", limit=500) for f in comparison.failures],
        sections=[_section(comparison, result) for result in comparison.results],
        means=table.means(comparison),
        curves=list(_curves(comparison)),
        named=[(table.name(label), paragraph(text, limit=5000)) for label, text in plan.objectives.items()],
        commands="\n".join(visible(shlex.join(["tokenpo", "train", *run.arguments]), limit=2000) for run in plan.runs),
        config=paragraph(_config(comparison), limit=20_000),
        software=[(visible(str(k), limit=40), visible(str(v), limit=120)) for k, v in comparison.versions.items()],
    )


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    plan, config = comparison.plan, comparison.plan.config
    first, last = plan.seeds[0], plan.seeds[-1]
    done, rollout = sum(map(len, comparison.finished.values())), config.rollout
    facts = [
        ("recipe", plan.recipe),
        ("model", config.model.path),
        ("task", config.task.name),
        ("steps", f"{config.train.steps:,} of {rollout.prompts} prompts x {rollout.group_size} responses"),
        ("updates per step", f"{config.train.epochs * config.train.minibatches}"),
        ("seeds", f"{first} to {last}"),
        ("runs", f"{done} of {len(plan.runs)}"),
        ("held-out problems", f"{config.evaluate.problems:,}"),
        ("baseline", "every pair" if comparison.baseline == "all" else comparison.baseline),
    ]
    return [(name, visible(text, limit=120)) for name, text in facts]


def _section(comparison: Comparison, result: Result) -> dict[str, Any]:
    measure, spots = result.measure, [_spot(pair) for pair in result.pairs]
    axis = Axis.over(spots, STRIP)
    rows = [
        Row(
            table.pair_name(comparison, pair),
            [_picture(pair, spot, axis), *table.numbers(pair), _verdict(comparison, result, pair)],
        )
        for pair, spot in zip(result.pairs, spots, strict=True)
    ]
    seeds = [
        Row(
            table.name(label),
            [Cell(_value(result, label, seed)) for seed in comparison.plan.seeds] + [Cell(table.spread(result, label))],
        )
        for label in comparison.plan.labels
    ]
    foot = [Cell("", picture=axis_labels(axis))]
    return {
        "title": visible(measure.title, limit=80),
        "meaning": visible(measure.meaning, limit=300),
        "differences": Table([table.heading(comparison), "", *table.NUMBERS, "verdict"], rows, words=True, foot=foot),
        "seeds": Table(["method", *(f"seed {seed}" for seed in comparison.plan.seeds), "range"], seeds),
    }


def _spot(pair: Pair) -> Spot:
    points = [(d, f"seed {seed}: {table.signed(d)}") for seed, d in zip(pair.seeds, pair.differences, strict=True)]
    return Spot(pair.mean, pair.low, pair.high, "open" if pair.above is None else "c0", points)


def _picture(pair: Pair, spot: Spot, axis: Axis) -> Cell:
    name = f"difference {table.signed(pair.mean)}, 95 % interval {table.interval(pair) or 'none'}"
    return Cell("", picture=strip([spot], axis, name))


def _verdict(comparison: Comparison, result: Result, pair: Pair) -> Cell:
    """With its reason, but for what stands at the top of the page and holds for all."""
    reason = pair.reason
    for note in comparison.notes:
        reason = reason.removeprefix(note).lstrip()
    reason = " ".join(filter(None, (reason, table.bound(result, pair))))
    return Cell(table.name(pair.verdict), reason, kind="decided" if pair.above is not None else "")


def _value(result: Result, label: str, seed: int) -> str:
    value = result.values[label].get(seed)
    if value is None:
        return "no run"
    return ("≥ " if value.censored else "") + number(value.number)


def _curves(comparison: Comparison) -> Iterator[tuple[str, list[tuple[Chart, Markup]]]]:
    """(title, charts): every method beside the baseline, mean over seeds, shaded from the lowest to the highest."""
    labels = comparison.plan.labels
    base = labels[0] if comparison.baseline == "all" else comparison.baseline
    for metric, title, unit, fraction in (
        ("eval/accuracy", "Held-out accuracy", "greedy", True),
        ("accuracy", "Training accuracy", "sampled", True),
        ("entropy", "Entropy", "nats per token", False),
    ):
        bands = comparison.bands[metric]
        charts = [
            Chart(
                table.name(label), unit, "",
                [
                    _line(table.name(label), bands[label], 0, dots=metric.startswith("eval/")),
                    _line(table.name(base), bands[base], 1, dashed=True, dots=metric.startswith("eval/")),
                ],
                fraction=fraction, high=1.0 if fraction else None, always=True,
            )
            for label in labels
            if label != base and bands[label].points
        ]  # fmt: skip
        if charts:
            yield title, [(chart, draw(chart)) for chart in charts]


def _line(label: str, band: SeedBand, colour: int, *, dashed: bool = False, dots: bool = False) -> Line:
    return Line(
        label,
        [(step, mean) for step, mean, _, _ in band.points],
        colour,
        dashed=dashed,
        dots=dots,
        span=[(step, low, high) for step, _, low, high in band.points],
        shaded=True,
    )


def _config(comparison: Comparison) -> str:
    shared = comparison.plan.config.model_dump(mode="json", exclude={"method", "seed", "output"})
    return json.dumps(shared, indent=2, ensure_ascii=False)
