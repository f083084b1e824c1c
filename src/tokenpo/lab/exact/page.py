"""The page of a study: for every measure a matrix of methods x worlds, and a card for each world and each method."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from markupsafe import Markup, escape

from ...base.text import number
from ...page import chart, frame, table
from ...page.table import Table
from ...page.text import paragraph, percent, visible
from ...page.tokens import DIVERGING
from ..estimate import Number
from . import training
from .study import BASE, PERFECT, Row
from .table import CATALOGUE, Measure, cell, heading
from .training import GOAL, MOST
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
        methods=[_method(row, known[BASE], worlds) for row in methods if row.label != BASE],
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
        "says": [visible(text, limit=2000) for text in of_world(world, rows)],
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


def _method(row: Row, base: Row, worlds: Sequence[World]) -> dict[str, Any]:
    says = {
        "helps": helps(row, base, worlds), "fails": fails(row, base, worlds),
        "noisy training at its best step size": trains(row, base, worlds), "why": why(row, base, worlds),
    }  # fmt: skip
    named = [(name, visible(text, limit=2000)) for name, text in says.items() if text]
    return {"name": visible(row.label, limit=60), "says": named}


def _count(things: Collection[object], name: str) -> str:
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


SMALL = 0.01  # differences in useful progress below this are not reported
FAR = 2.0  # nor those below this number of standard errors


def helps(row: Row, base: Row, worlds: Sequence[World]) -> str:
    """A sentence about the worlds where the method's update is more useful than DAPO's."""
    gains = [(world, *(r.at(world, "init/useful") for r in (row, base))) for world in worlds]
    gains = [(w, x, y) for w, x, y in gains if x.value - y.value > max(SMALL, FAR * math.hypot(_error(x), _error(y)))]
    if not gains:
        return f"Nowhere is its update more useful than DAPO's by {SMALL:g} and {FAR:g} standard errors."
    gains.sort(key=lambda gain: gain[2].value - gain[1].value)
    named = [f"{number(round(x.value, 3))} for {number(round(y.value, 3))} in {w.name}" for w, x, y in gains[:3]]
    return f"The useful progress of an update is more than DAPO's: {_list(named)}."


def trains(row: Row, base: Row, worlds: Sequence[World]) -> str:
    """A sentence that compares noisy training at the best step size with DAPO's; "" if it was not run."""
    if any("noisy/area" not in r.cells[world.name].numbers for r in (row, base) for world in worlds):
        return ""
    own, theirs = (fmean(r.at(world, "noisy/area").value for world in worlds) for r in (row, base))
    return f"The area under the reward is {own:.3f} in the mean over worlds, DAPO's {theirs:.3f}."


def fails(row: Row, base: Row, worlds: Sequence[World]) -> str:
    """Sentences about the worlds where training stays below the goal, or an update is less useful than DAPO's."""
    losses, stays = [], []
    for world in worlds:
        x, y = (r.at(world, "init/useful") for r in (row, base))
        if y.value - x.value > max(SMALL, FAR * math.hypot(_error(x), _error(y))):
            losses.append((world, round(x.value, 3) + 0.0, y.value))
        if _stays(row, world):
            J, ran_out = number(row.at(world, "train/J").value, 2), len(row.cells[world.name].curve) > MOST
            end = f"it is at J = {J} after {MOST} batches" if ran_out else f"it stands still at J = {J}"
            stays.append(f"{_named(world)} {end}")
    losses.sort(key=lambda loss: loss[1] - loss[2])
    behind = [f"{number(own)} for {number(theirs)} in {_named(world)}" for world, own, theirs in losses]
    sentences = [
        f"{begin} {_list(where[:3])}{f'; so it is in {len(where) - 3} more' if len(where) > 3 else ''}."
        for begin, where in (
            (f"Expected training does not reach J = {GOAL:g}: in", stays),
            ("The useful progress of an update is less than DAPO's:", behind),
        )
        if where
    ]
    return " ".join(sentences) or "In no world does it end below the goal or fall behind DAPO's update."


def why(row: Row, base: Row, worlds: Sequence[World]) -> str:
    """A sentence about the largest difference from DAPO's update: in direction, tokens or clip."""
    if blind := [world.name for world in worlds if row.at(world, "init/deciding").value < 1e-9]:
        return f"Its update leaves the tokens that decide exactly as they are in {_list(blind)}."
    bent = min(worlds, key=lambda world: row.at(world, "init/cosine").value)
    cosine = row.at(bent, "init/cosine")
    if cosine.value < 0.98 - FAR * _error(cosine):
        return (
            f"Its expected update points elsewhere than the gradient of the reward: cosine "
            f"{number(round(cosine.value, 3))} (± {number(_error(cosine), 1)}) in {bent.name}."
        )
    (drift, dapos), (deciding, its) = (
        [fmean(r.at(world, key).value for world in worlds) for r in (row, base)]
        for key in ("drift/toward", "init/deciding")
    )
    if max(abs(drift - dapos), abs(deciding - its)) < 0.02:
        return "On policy its expected update is the gradient's direction, and its noise and its clip are DAPO's."
    if abs(drift - dapos) >= abs(deciding - its):
        return (
            f"Its clip leaves {'more' if drift > dapos else 'less'} of an update once the policy has moved toward the "
            f"gradient: useful progress {number(drift)} there in the mean over worlds, DAPO's is {number(dapos)}."
        )
    return (
        f"It puts {percent(deciding)} of the squared update on tokens that decide, in the mean over worlds; "
        f"DAPO puts {percent(its)} there."
    )


def of_world(world: World, rows: Sequence[Row]) -> Iterator[str]:
    """Sentences about a world: useful progress of the references, the extremes, and methods that never arrive."""
    known = {row.label: row for row in rows}
    dapo, perfect = (number(known[label].at(world, "init/useful").value) for label in (BASE, PERFECT))
    yield f"The useful progress of an update is {dapo} with DAPO and {perfect} with exact credit in its place."
    others = {label: row for label, row in known.items() if label not in (BASE, PERFECT)}
    if not others:
        return

    def extreme(key: str, pick: Callable[..., str]) -> tuple[str, float]:
        values = {label: round(row.at(world, key).value, 4) + 0.0 for label, row in others.items()}
        label = pick(values, key=values.__getitem__)
        return label, values[label]

    (best, most), (worst, least) = extreme("init/useful", max), extreme("init/useful", min)
    yield f"The most useful update is that of {best}, {number(most)}, the least that of {worst}, {number(least)}."
    (keeps, high), (clips, low) = extreme("drift/toward", max), extreme("drift/toward", min)
    yield (
        f"After a drift toward the gradient the update of {keeps} is the most useful, {number(high)}, that of {clips} "
        f"the least, {number(low)}."
        if high > low
        else f"After a drift toward the gradient the useful progress of an update is {number(high)}."
    )
    ends = {label: row.at(world, "train/J").value for label, row in known.items() if _stays(row, world)}
    stays = _list([f"{label} (J = {number(J, 2)})" for label, J in ends.items()]) if ends else ""
    yield f"Expected training ends below J = {GOAL:g} with {stays}." if stays else "With all of them training arrives."


def _stays(row: Row, world: World) -> bool:
    return row.at(world, "train/batches").value == math.inf


def _named(world: World) -> str:
    return f"{world.name} (where “{world.premise}” is false)" if world.holds is False else world.name


def _error(x: Number) -> float:
    return x.error if math.isfinite(x.error) else 0.0


def _list(words: Sequence[str]) -> str:
    """A, B and C."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


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
