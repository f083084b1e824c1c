"""A world as a picture: states in the order of their positions, arrows as wide as they are probable, as inline SVG."""

from __future__ import annotations

from collections import defaultdict

from markupsafe import Markup, escape

from ...base.text import number
from .truth import deciding
from .world import World

COLUMN, ROW, MARGIN, RADIUS = 74, 26, 16, 6
_SMALLER = 14  # states in a column from which they move closer together
_LONGER = 10  # columns, likewise


def draw(world: World) -> Markup:
    """The automaton as one <svg>. A filled circle is a state whose token matters; squares are rewards."""
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
    chosen = deciding(world).tolist()
    for state, decides in zip(world.states, chosen, strict=True):
        x, y = at(state.name)
        title = f"{state.name}: {', '.join(number(p, 2) for p in state.p)}"
        kind = "state decides" if decides else "state"
        parts.append(
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}"><title>{escape(title)}</title></circle>'
        )
    for node in [node for node in places if node.startswith("reward ")]:
        x, y = at(node)
        kind = "end" if node == "reward 0" else "end won"
        parts.append(
            f'<rect class="{kind}" x="{x - RADIUS:.1f}" y="{y - RADIUS:.1f}" width="{2 * RADIUS}" '
            f'height="{2 * RADIUS}"><title>{escape(node)}</title></rect>'
        )
    return Markup("".join(parts) + "</svg>")


def _places(world: World) -> dict[str, tuple[float, float]]:
    """(column, row) of every state and reward: a column further than anything that leads there, centred."""
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
        node: (float(x), y + (tallest - len(there)) / 2) for x, there in rows.items() for y, node in enumerate(there)
    }


def _node(to: str | float) -> str:
    return to if isinstance(to, str) else f"reward {to:g}"
