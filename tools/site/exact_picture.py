"""docs/exact.svg: what methods get of what perfect token credit would gain on DAPO, from docs/exact.json."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from html import escape

from tokenpo.base.text import number
from tokenpo.lab.exact import study
from tokenpo.lab.exact.world import World

SHOWN = (
    (study.BASE, study.PERFECT),
    ("tepo", "gtpo", "grpo_s", "tr_grpo", "hapo"),
    ("grpo", "dr_grpo", "gspo", "sapo", "adv_reweight", "forking_tokens", "t_spmo", "thr", "otb", "maxrl",
     "grpo_passk", "gdpo", "reinforce_pp", "eb_cispo"),
)  # fmt: skip
ALIKE = 0.02  # of the possible gain: a method that stays this close to DAPO in every world is one of the last line
LABEL, COLUMN, ROW, HEAD, BREAK, LINE, EDGE = 128, 72, 24, 44, 8, 18, 12
# From -1 and less to 1 and more: ground and ink.
COLOURS = (
    ("#b3400b", "#fff"), ("#dd6a2c", "#16181a"), ("#f2a477", "#16181a"), ("#fad7c1", "#16181a"), ("#f1f1ee", "#16181a"),
    ("#cfe2f2", "#16181a"), ("#92c0e3", "#16181a"), ("#4a90c9", "#101214"), ("#1763a6", "#fff"),
)  # fmt: skip
TITLE = "What each method gets of what perfect token credit would gain on DAPO, in twelve worlds"
STYLE = """\
text { font: 13px system-ui, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif; fill: #16181a }
.head { fill: #55636f; text-anchor: middle } .value { text-anchor: middle } .note { fill: #55636f }"""


def drawing(rows: Mapping[str, study.Row], worlds: Sequence[World]) -> str:
    """The picture as text: a row for each method of `SHOWN`, and a line that names those which are as DAPO."""
    width, y, parts = LABEL + COLUMN * len(worlds) + 2 * EDGE, HEAD + EDGE, []
    for k, world in enumerate(worlds):
        words = textwrap.wrap(world.name.replace("_", " "), 10)
        x = EDGE + LABEL + COLUMN * (k + 0.5)
        parts += [_text(x, y - 6 - 15 * (len(words) - 1 - i), "head", word) for i, word in enumerate(words)]
    for group in SHOWN:
        for label in group:
            parts.append(_text(EDGE, y + 16, "", label))
            parts += [line for k, world in enumerate(worlds) for line in _cell(_captured(rows[label], world), k, y)]
            y += ROW
        y += BREAK
    names = ", ".join(as_dapo(rows, worlds))
    for line in textwrap.wrap(f"Within {ALIKE:g} of DAPO in all twelve: {names}.", 150, break_on_hyphens=False):
        y += LINE
        parts.append(_text(EDGE, y - 4, "note", line))
    size = f'viewBox="0 0 {width} {y + EDGE}" width="{width}" height="{y + EDGE}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(TITLE)}">'
    ground = f'<rect width="{width}" height="{y + EDGE}" fill="#fff"/>'
    return "\n".join([head, f"<style>\n{STYLE}\n</style>", ground, *parts, "</svg>"]) + "\n"


def as_dapo(rows: Mapping[str, study.Row], worlds: Sequence[World]) -> list[str]:
    """The methods whose update is as useful as DAPO's everywhere."""
    others = [label for label in rows if label not in SHOWN[0] and ":" not in label]
    return sorted(x for x in others if all(abs(_captured(rows[x], world)) <= ALIKE for world in worlds))


def _captured(row: study.Row, world: World) -> float:
    return row.cells[world.name].numbers["init/captured"].value


def _cell(x: float, column: int, y: int) -> Iterator[str]:
    left, half = EDGE + LABEL + COLUMN * column, len(COLOURS) // 2
    ground, ink = COLOURS[half + round(half * max(-1.0, min(1.0, x)))]
    yield f'<rect x="{left}" y="{y}" width="{COLUMN - 1}" height="{ROW - 1}" fill="{ground}"/>'
    told, middle = number(round(x, 2) + 0.0), left + COLUMN / 2
    yield f'<text class="value" x="{middle:g}" y="{y + 16}" style="fill:{ink}">{told}</text>'


def _text(x: float, y: float, kind: str, text: str) -> str:
    of = f' class="{kind}"' if kind else ""
    return f'<text{of} x="{x:g}" y="{y:g}">{escape(text)}</text>'
