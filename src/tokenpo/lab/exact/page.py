"""The page of a study: for every measure a matrix of methods x worlds, and a card for each world."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape

from ...base.text import number
from ...page import chart, frame, table
from ...page.table import Table
from ...page.text import paragraph, visible
from ...page.tokens import DIVERGING
from ..estimate import Number
from . import training
from .study import BASE, PERFECT, Row
from .table import CATALOGUE, Measure, cell, heading
from .truth import deciding, truth
from .world import World

HERE = Path(__file__).parent


def render(rows: Sequence[Row], worlds: Sequence[World]) -> str:
    """The page as text; the same numbers give the same bytes."""
    known = {row.label: row for row in rows}
    keys = {key for row in rows for cell in row.cells.values() for key in cell.numbers}
    measures = [measure for measure in CATALOGUE.values() if measure.key in keys]
    methods = [row for row in rows if row.label != PERFECT]
    kinds = {row.objective.partition("\n")[0] for row in methods}  # rows of one method may differ in options
    return frame.render(
        HERE / "exact.html",
        f"{_count(kinds, 'method')} in {_count(worlds, 'world')} whose gradient is known",
        script=(HERE / "exact.js").read_text(encoding="utf-8"),
        rules=[f":root:has(#m{k}:checked) .m{k}{{display:block}}" for k in range(len(measures))],
        matrices=[(k, m.title, m.meaning, _matrix(known, worlds, m)) for k, m in enumerate(measures)],
        worlds=[_world(world, rows) for world in worlds],
        named=[(visible(row.label, limit=60), paragraph(row.objective, limit=5000)) for row in methods],
    )


def _matrix(known: Mapping[str, Row], worlds: Sequence[World], measure: Measure) -> Table:
    body = []
    for row in known.values():
        cells = [cell(row, world.name, measure, _colour(row, world, measure)) for world in worlds]
        body.append(table.Row(visible(row.label, limit=60), cells, apart=row.label in (BASE, PERFECT)))
    return Table(heading(world.name for world in worlds), body)


def _colour(row: Row, world: World, measure: Measure) -> str:
    """Style class of a cell: blue is good, on the measure's own scale; a run that never arrives is the worst."""
    x, half = row.cells[world.name].numbers.get(measure.key, Number(math.nan)).value, DIVERGING // 2
    if x == math.inf:
        return "d0"
    if measure.ends is None or math.isnan(x):
        return ""
    low, high = measure.ends
    return f"d{half + round(half * max(-1.0, min(1.0, (2 * x - low - high) / (high - low))))}"


def _world(world: World, rows: Sequence[Row]) -> dict[str, Any]:
    at = truth(world, world.initial)
    facts = [
        ("mean reward", number(float(at.J))), ("entropy", f"{number(float(at.entropy))} nats"),
        ("length", f"{number(float(at.length))} tokens"), ("states", str(len(world.states))),
        ("vocabulary", str(len(world.states[0].p))),
    ]  # fmt: skip
    return {
        "name": world.name, "premise": world.premise, "about": world.about, "facts": facts,
        "judged": {True: "true here", False: "false here", None: ""}[world.holds],
        "tone": "good" if world.holds else "bad", "drawing": draw(world),
        "curves": _curves(world, rows),
    }  # fmt: skip


def _curves(world: World, rows: Sequence[Row]) -> tuple[chart.Chart, Markup]:
    """Curves of expected training: the references, and the two first and two last of the other methods to arrive."""
    others = sorted(
        (row for row in rows if row.label not in (BASE, PERFECT)),
        key=lambda row: (row.at(world, "train/batches").value, -row.at(world, "train/J").value),
    )
    chosen = {row.label: row for row in [*rows[:2], *others[:2], *others[-2:]]}.values()
    lines = [
        chart.Line(visible(row.label, limit=40), list(enumerate(row.cells[world.name].curve)), k % 3, dashed=k >= 3)
        for k, row in enumerate(chosen)
    ]
    made = chart.Chart(
        "Expected training", "mean reward", f"step: batches of four updates, until J = {training.GOAL:g}; steps of one "
        "size: the references, and the first two and the last two to arrive.", lines, high=1.0,
    )  # fmt: skip
    return made, chart.draw(made)


def _count(things: Collection[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


COLUMN, ROW, MARGIN, RADIUS = 74, 26, 16, 6
_SMALLER = 14  # with more states in a column, they are drawn closer together
_LONGER = 10  # with more columns, likewise


def draw(world: World) -> Markup:
    """The automaton as one <svg>: states by position from left to right, arrows with widths by their probability.

    A filled circle is a state whose token matters; squares are rewards.
    """
    places = _places(world)
    longest = max(x for x, _ in places.values())
    column = COLUMN if longest < _LONGER else COLUMN * _LONGER / longest
    width = MARGIN * 2 + column * longest
    tallest = max(y for _, y in places.values())
    row = ROW if tallest < _SMALLER else ROW * _SMALLER / tallest
    height = MARGIN * 2 + row * tallest

    def at(node: str) -> tuple[float, float]:
        x, y = places[node]
        return MARGIN + column * x, MARGIN + row * y

    parts = [
        f'<svg class="automaton" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{escape(world.name)}: {len(world.states)} states, from left to right">'
    ]
    for state in world.states:
        ways: dict[str, float] = defaultdict(float)
        for p, to in zip(state.p, state.to, strict=True):
            ways[_node(to)] += p
        for node, p in ways.items():
            (x, y), (x2, y2) = at(state.name), at(node)
            middle = (x + x2) / 2
            path = f"M{x:.1f} {y:.1f}C{middle:.1f} {y:.1f} {middle:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
            parts.append(f'<path class="way" stroke-width="{0.4 + 3.6 * p:.2f}" d="{path}"/>')
    for state, decides in zip(world.states, deciding(world).tolist(), strict=True):
        x, y = at(state.name)
        title = escape(f"{state.name}: {', '.join(number(p, 2) for p in state.p)}")
        kind = "state decides" if decides else "state"
        parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}"><title>{title}</title></circle>')
    size = 2 * RADIUS
    for node in [node for node in places if node.startswith("reward ")]:
        x, y = (place - RADIUS for place in at(node))
        box = f'x="{x:.1f}" y="{y:.1f}" width="{size}" height="{size}"'
        kind = "end" if node == "reward 0" else "end won"
        parts.append(f'<rect class="{kind}" {box}><title>{escape(node)}</title></rect>')
    return Markup("".join(parts) + "</svg>")


def _places(world: World) -> dict[str, tuple[float, float]]:
    """(column, row) of every state and reward: one column after every predecessor, rows centred in the column."""
    column = dict.fromkeys(world.prompts, 0)
    for _ in world.states:
        for state in world.states:
            for to in state.to if state.name in column else ():
                if isinstance(to, str):
                    column[to] = max(column.get(to, 0), column[state.name] + 1)
    last = max(column.values()) + 1
    nodes = {**column, **{_node(to): last for state in world.states for to in state.to if not isinstance(to, str)}}
    rows: dict[int, list[str]] = defaultdict(list)
    for node in sorted(nodes, key=lambda node: (node == "reward 0", list(nodes).index(node))):
        rows[nodes[node]].append(node)
    tallest = max(map(len, rows.values()))
    return {
        node: (float(x), y + (tallest - len(below)) / 2) for x, below in rows.items() for y, node in enumerate(below)
    }


def _node(to: str | float) -> str:
    return to if isinstance(to, str) else f"reward {to:g}"
