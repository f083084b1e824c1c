"""The plan of the house, docs/house.svg: the rooms of src/tokenpo on their floors, and which imports which.

Floors are the layers that import-linter holds (pyproject.toml), arrows the imports themselves, words the first sentence
of each room's docstring. An arrow that follows from others is left out: a room that may use the room below may use what
is below that.
"""

from __future__ import annotations

import ast
import textwrap
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tokenpo"
WIDTH, EDGE, GAP, BETWEEN, ROOF, GROUND = 800, 40, 16, 34, 116, 30
LOW, HIGH, ROW = 64, 96, 17  # a room that has its floor to itself, one that shares it, and a row of its words
ATTIC = 330  # width of the room under the roof
LETTER = 6.9  # width of a letter of the words, at most
FILLS = ("#fdeedd", "#fdf4d8", "#eaf3dc", "#def1e6", "#dceff3", "#e2e8f8", "#ece9f1", "#f6e8ee")
INK, FAINT, LINE = "#22303c", "#55636f", "#8a96a1"
STYLE = f"""\
text {{ font-family: system-ui, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif; fill: {INK} }}
.house {{ font-size: 24px; font-weight: 300; letter-spacing: 3px; text-anchor: middle }}
.room {{ font-size: 18px; font-weight: 650 }}
.words {{ font-size: 13px; fill: {FAINT} }}
.folders {{ font-size: 12px; font-style: italic; fill: {FAINT} }}
.box {{ stroke: #b9c0c6 }}
.wall {{ fill: #fbfaf7; stroke: #cfc8bb; stroke-width: 2.5; stroke-linejoin: round; stroke-linecap: round }}
.arrow {{ fill: none; stroke: {LINE}; stroke-width: 1.6 }}"""


class Place(NamedTuple):
    """Of a room on the picture, in pixels from the upper left."""

    x: float
    y: float
    width: float
    tall: int


def floors() -> list[list[str]]:
    """The rooms from the top floor to the ground."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(c["layers"] for c in contracts if c["type"] == "layers" and "containers" not in c)
    return [[room.strip().removeprefix("tokenpo.") for room in layer.split("|")] for layer in layers]


def imports() -> set[tuple[str, str]]:
    """(room, room that it imports), wherever in a file the import stands."""
    return {
        (room, other)
        for file in PACKAGE.rglob("*.py")
        if (room := file.relative_to(PACKAGE).parts[0]) != file.name
        for name in imported(file)
        if (other := name.partition(".")[2].partition(".")[0]) != room
        and (PACKAGE / other / "__init__.py").exists()
        and other
    }


def imported(file: Path) -> Iterator[str]:
    """The dotted names of our own modules, and what is taken from them."""
    package = ("tokenpo", *file.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            place = [*package[: len(package) + 1 - node.level]] if node.level else []
            place += [node.module] if node.module else []
            yield from (name for x in node.names if (name := ".".join([*place, x.name])).startswith("tokenpo."))
        if isinstance(node, ast.Import):
            yield from (x.name for x in node.names if x.name.startswith("tokenpo."))


def reduced(arrows: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """The arrows that do not follow from others."""
    reach = {room: {b for a, b in arrows if a == room} for room in {a for a, _ in arrows}}
    for _ in reach:
        reach = {room: there.union(*(reach.get(b, set()) for b in there)) for room, there in reach.items()}
    return sorted((a, b) for a, b in arrows if not any(b in reach.get(c, ()) for x, c in arrows if x == a and c != b))


def words(room: str) -> str:
    doc = ast.get_docstring(ast.parse((PACKAGE / room / "__init__.py").read_text(encoding="utf-8"))) or ""
    return doc.split(". ")[0].splitlines()[0].rstrip(".")


def drawing() -> str:
    """The picture as SVG."""
    places, top, boxes = {}, ROOF, []
    for rooms, fill in zip(plan := floors(), FILLS, strict=True):
        whole = ATTIC if rooms == plan[0] else WIDTH - 2 * EDGE
        width = (whole - GAP * (len(rooms) - 1)) / len(rooms)
        rows = max(len(wrapped(words(room), width)) + len(wrapped(folders(room), width)) for room in rooms)
        tall = LOW if len(rooms) == 1 else max(HIGH, 47 + ROW * rows)
        for i, room in enumerate(rooms):
            places[room] = Place((WIDTH - whole) / 2 + i * (width + GAP), top, width, tall)
            boxes.append(box(room, places[room], fill))
        top += tall + BETWEEN
    height = top - BETWEEN + GROUND
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
        f"<title>The rooms of tokenpo, and which imports which</title>\n<style>\n{STYLE}\n</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{LINE}"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#ffffff"/>',
        house(height - 12),
        *arrows(places, reduced(imports())),
        *boxes,
        "</svg>\n",
    ])  # fmt: skip


def house(ground: float) -> str:
    """Roof, walls and ground."""
    left, right, eaves = EDGE - 18, WIDTH - EDGE + 18, ROOF + LOW + BETWEEN / 2
    return (
        f'<path class="wall" d="M{left} {ground} V{eaves:g} L{WIDTH / 2:g} 12 L{right} {eaves:g} V{ground}"/>'
        f'<path class="wall" d="M6 {ground} H{WIDTH - 6}"/><text class="house" x="{WIDTH / 2:g}" y="86">tokenpo</text>'
    )


def box(room: str, place: Place, fill: str) -> str:
    """A room: its name, its words, and the folders in it."""
    x, y, width, tall = place
    inside = wrapped(folders(room), width)
    first = y + (25 if tall == LOW else tall - 12 - ROW * (len(inside) - 1))
    return "\n".join([
        f'<rect class="box" x="{x:g}" y="{y:g}" width="{width:g}" height="{tall}" rx="8" fill="{fill}"/>',
        f'<text class="room" x="{x + 14:g}" y="{y + 26:g}">{room}</text>',
        *(
            f'<text class="words" x="{x + 14:g}" y="{y + 47 + ROW * i:g}">{escape(line)}</text>'
            for i, line in enumerate(wrapped(words(room), width))
        ),
        *(
            f'<text class="folders" x="{x + width - 14:g}" y="{first + ROW * i:g}" text-anchor="end">{line}</text>'
            for i, line in enumerate(inside)
        ),
    ])  # fmt: skip


def wrapped(text: str, width: float) -> list[str]:
    """The rows of a text in a room of that width."""
    return textwrap.wrap(text, int((width - 28) / LETTER))


def folders(room: str) -> str:
    return " · ".join(sorted(p.parent.name for p in (PACKAGE / room).glob("*/__init__.py")))


def arrows(places: dict[str, Place], shown: list[tuple[str, str]]) -> Iterator[str]:
    """Each from the floor of a room to the ceiling of another; several of one room stand side by side."""

    def x(room: str, other: str, end: int) -> float:
        there = sorted((pair[1 - end] for pair in shown if pair[end] == room), key=lambda name: places[name].x)
        return places[room].x + places[room].width * (there.index(other) + 1) / (len(there) + 1)

    for upper, lower in shown:
        a, b, y, z = x(upper, lower, 0), x(lower, upper, 1), places[upper].y + places[upper].tall, places[lower].y - 3
        line = f"M{a:.1f} {y:g} C{a:.1f} {y + 18:g} {b:.1f} {z - 18:g} {b:.1f} {z:g}"
        yield f'<path class="arrow" d="{line}" marker-end="url(#tip)"/>'
