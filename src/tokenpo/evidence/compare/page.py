"""compare.html: the comparison as one file that loads nothing, runs nothing and can be mailed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from ...base.text import number
from ..page.chart import Chart, Line, draw
from ..page.page import policy, stylesheet, template, write
from ..page.text import paragraph, visible
from . import words
from .result import Band, Comparison, Result
from .strip import axis, scale, strip

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Row:
    """One pair as the table of a measure shows it."""

    name: str
    difference: str
    interval: str
    p: str
    adjusted: str
    verdict: str
    decided: bool
    reason: str
    picture: Markup


def write_page(comparison: Comparison, target: Path) -> Path:
    """Draws the comparison.

    Raises:
        TokenPOError: the place cannot be written.
    """
    return write(render(comparison), target)


def render(comparison: Comparison) -> str:
    """The page as text. The same runs give the same bytes."""
    style = stylesheet(HERE / "compare.css")
    plan = comparison.plan
    labels = {label: words.name(label) for label in plan.labels}
    return template(HERE, "compare.html").render(
        policy=policy(style),
        style=Markup(style),
        title=visible(comparison.title, limit=200),
        facts=_facts(comparison),
        summaries=[(visible(r.measure.title, limit=80), words.summary(r)) for r in comparison.results],
        notes=[visible(note, limit=1000) for note in comparison.notes],
        failures=[visible(f"{f.run.name}: {f.line}", limit=500) for f in comparison.failures],
        heading=words.heading(comparison),
        sections=[_section(comparison, result) for result in comparison.results],
        means=[(labels[label], [words.mean(r, label) for r in comparison.results]) for label in plan.labels],
        curves=list(_curves(comparison)),
        seeds=plan.seeds,
        objectives=[(labels[label], paragraph(text, limit=5000)) for label, text in plan.objectives.items()],
        commands="\n".join(visible(shlex.join(["tokenpo", "train", *run.arguments]), limit=2000) for run in plan.runs),
        config=paragraph(_config(comparison), limit=20_000),
        versions=[(visible(str(k), limit=40), visible(str(v), limit=120)) for k, v in comparison.versions.items()],
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


def _section(comparison: Comparison, result: Result) -> dict[str, object]:
    span = scale(result.pairs)
    rows = [
        Row(
            name=words.pair_name(comparison, pair),
            difference=words.signed(pair.mean),
            interval=words.interval(pair),
            p=words.p_value(pair.p),
            adjusted=words.p_value(pair.adjusted),
            verdict=words.name(pair.verdict),
            decided=pair.above is not None,
            reason=" ".join(filter(None, (pair.reason, words.bound(result, pair)))),
            picture=strip(pair, span),
        )
        for pair in result.pairs
    ]
    values = [
        (words.name(label), [_cell(result, label, seed) for seed in comparison.plan.seeds], words.spread(result, label))
        for label in comparison.plan.labels
    ]
    measure = result.measure
    return {
        "title": visible(measure.title, limit=80),
        "unit": measure.unit,
        "meaning": visible(measure.meaning, limit=300),
        "rows": rows,
        "axis": axis(span),
        "values": values,
    }


def _cell(result: Result, label: str, seed: int) -> str:
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
                words.name(label), unit, "",
                [_line(words.name(label), bands[label], 0), _line(words.name(base), bands[base], 1, dashed=True)],
                fraction=fraction, high=1.0 if fraction else None, always=True,
            )
            for label in labels
            if label != base and bands[label].points
        ]  # fmt: skip
        if charts:
            yield title, [(chart, draw(chart)) for chart in charts]


def _line(label: str, band: Band, colour: int, *, dashed: bool = False) -> Line:
    return Line(
        label,
        [(step, mean) for step, mean, _, _ in band.points],
        colour,
        dashed=dashed,
        span=[(step, low, high) for step, _, low, high in band.points],
        shaded=True,
    )


def _config(comparison: Comparison) -> str:
    shared = comparison.plan.config.model_dump(mode="json", exclude={"method", "seed", "output"})
    return json.dumps(shared, indent=2, ensure_ascii=False)
