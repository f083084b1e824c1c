"""The page of a study: a matrix methods x worlds for every measure, a card for each world and each method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ...base.text import number
from ...page import chart, frame
from ...page.scale import DIVERGING
from ...page.table import Row, Table
from ...page.text import paragraph, visible
from . import drawing, sentences, study, training
from .table import CATALOGUE, Measure, cell, heading
from .truth import truth
from .world import World

HERE = Path(__file__).parent


def render(rows: Sequence[study.Row], worlds: Sequence[World]) -> str:
    """The page as text. The same numbers give the same bytes."""
    sentences.against(rows)
    known = {row.label: row for row in rows}
    keys = {key for row in rows for cell in row.cells.values() for key in cell.numbers}
    measures = [measure for measure in CATALOGUE.values() if measure.key in keys]
    methods = [row for row in rows if row.label != study.PERFECT]
    return frame.render(
        HERE / "exact.html",
        f"{_count(methods, 'method')} in {_count(worlds, 'world')} whose gradient is known",
        script=(HERE / "exact.js").read_text(encoding="utf-8"),
        rules=[f":root:has(#m{k}:checked) .m{k}{{display:block}}" for k in range(len(measures))],
        matrices=[(k, m.title, m.meaning, _matrix(known, worlds, m)) for k, m in enumerate(measures)],
        worlds=[_world(world, rows) for world in worlds],
        methods=[_method(row, known[study.BASE], worlds) for row in methods if row.label != study.BASE],
        named=[(visible(row.label, limit=60), paragraph(row.objective, limit=5000)) for row in methods],
    )


def _matrix(known: Mapping[str, study.Row], worlds: Sequence[World], measure: Measure) -> Table:
    body = []
    for row in known.values():
        cells = [cell(row, world.name, measure, _colour(row, known[study.BASE], world, measure)) for world in worlds]
        body.append(Row(visible(row.label, limit=60), cells, apart=row.label in (study.BASE, study.PERFECT)))
    return Table(heading(world.name for world in worlds), body)


def _colour(row: study.Row, base: study.Row, world: World, measure: Measure) -> str:
    """Blue is good: by the measure's own scale, or for batches by how many it takes of DAPO's."""
    x, y = (r.cells[world.name].numbers.get(measure.key, study.Number(math.nan)).value for r in (row, base))
    if measure.key.endswith("/batches"):
        share = -math.log2(x / y) if 0 < y < math.inf and x > 0 else 0.0
    elif measure.ends is None or math.isnan(x):
        return ""
    else:
        low, high = measure.ends
        share = (2 * x - low - high) / (high - low)
    half = DIVERGING // 2
    return f"d{half + round(half * max(-1.0, min(1.0, share)))}"


def _world(world: World, rows: Sequence[study.Row]) -> dict[str, Any]:
    at = truth(world, world.initial)
    facts = [
        ("mean reward", number(float(at.J))), ("entropy", f"{number(float(at.entropy))} nats"),
        ("length", f"{number(float(at.length))} tokens"), ("states", str(len(world.states))),
        ("vocabulary", str(len(world.states[0].p))),
    ]  # fmt: skip
    return {
        "name": world.name, "premise": world.premise, "about": world.about, "facts": facts,
        "judged": {True: "true here", False: "false here", None: ""}[world.holds],
        "tone": "good" if world.holds else "bad", "drawing": drawing.draw(world),
        "says": [visible(text, limit=2000) for text in sentences.of_world(world, rows)],
        "curves": _curves(world, rows),
    }  # fmt: skip


def _curves(world: World, rows: Sequence[study.Row]) -> tuple[chart.Chart, Markup]:
    """Exact training of the references, and of the fastest and the slowest of the others."""
    others = sorted(
        (row for row in rows if row.label not in (study.BASE, study.PERFECT)),
        key=lambda row: (row.at(world, "middle/batches").value, -row.at(world, "middle/J").value),
    )
    chosen = {row.label: row for row in [*rows[:2], *others[:2], *others[-2:]]}.values()
    lines = [
        chart.Line(visible(row.label, limit=40), list(enumerate(row.cells[world.name].curve)), k % 3, dashed=k >= 3)
        for k, row in enumerate(chosen)
    ]
    made = chart.Chart(
        "Exact training", "mean reward", f"step: batches of four updates, middle steps, until J = {training.GOAL:g}; "
        "the references, the two fastest and the two slowest.", lines, high=1.0,
    )  # fmt: skip
    return made, chart.draw(made)


def _method(row: study.Row, base: study.Row, worlds: Sequence[World]) -> dict[str, Any]:
    says = {
        "helps": sentences.helps(row, worlds), "fails": sentences.fails(row, base, worlds),
        "why": sentences.why(row, base, worlds),
    }  # fmt: skip
    named = [(name, visible(text, limit=2000)) for name, text in says.items()]
    return {"name": visible(row.label, limit=60), "says": named}


def _count(things: Sequence[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"
