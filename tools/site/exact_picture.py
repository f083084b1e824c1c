"""docs/exact.svg: how methods train at their best step size, less DAPO, from docs/exact.json."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from tokenpo.lab.exact import study
from tokenpo.lab.exact.world import World

SHOWN = (
    (study.BASE, study.PERFECT),
    ("tepo", "gtpo", "grpo_s", "tr_grpo", "hapo"),
    ("grpo", "dr_grpo", "gspo", "cispo", "sapo", "adv_reweight", "forking_tokens", "t_spmo", "thr", "otb", "maxrl",
     "grpo_passk", "gdpo", "reinforce_pp", "eb_cispo"),
)  # fmt: skip
FULL, FAR = 0.04, 2.0  # lead of the strongest colour; standard errors below which a lead has no colour
LABEL, COLUMN, ROW, HEAD, BREAK, EDGE = 128, 72, 24, 44, 8, 12
# From -FULL and less to FULL and more: ground and ink.
COLOURS = (
    ("#b3400b", "#fff"), ("#dd6a2c", "#16181a"), ("#f2a477", "#16181a"), ("#fad7c1", "#16181a"), ("#f1f1ee", "#16181a"),
    ("#cfe2f2", "#16181a"), ("#92c0e3", "#16181a"), ("#4a90c9", "#101214"), ("#1763a6", "#fff"),
)  # fmt: skip
TITLE = "How much better or worse than DAPO each method trains at its best step size, in twelve worlds"
STYLE = """\
text { font: 13px system-ui, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif; fill: #16181a }
.head { fill: #55636f; text-anchor: middle } .value { text-anchor: middle } .note { fill: #55636f }"""


def drawing(rows: Mapping[str, study.Row], worlds: Sequence[World]) -> str:
    """The picture as text: DAPO's area under the reward, and the lead on it of each method of `SHOWN`."""
    width, y, parts = LABEL + COLUMN * len(worlds) + 2 * EDGE, HEAD + EDGE, []
    for k, world in enumerate(worlds):
        words = textwrap.wrap(world.name.replace("_", " "), 10)
        x = EDGE + LABEL + COLUMN * (k + 0.5)
        parts += [text(x, y - 6 - 15 * (len(words) - 1 - i), word, "head") for i, word in enumerate(words)]
    for group in SHOWN:
        for label in group:
            parts.append(text(EDGE, y + 16, label))
            parts += [line for k, world in enumerate(worlds) for line in _cell(rows, label, world, k, y)]
            y += ROW
        y += BREAK
    parts.append(text(EDGE, y + 12, f"No colour: less than {FAR:g} standard errors from DAPO.", "note"))
    y += ROW
    return svg(TITLE, width, y + EDGE, STYLE, parts)


def svg(label: str, width: int, height: int, style: str, parts: Iterable[str]) -> str:
    """A picture on white, as text."""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label)}">'
    ground = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    return "\n".join([head, f"<style>\n{style}\n</style>", ground, *parts, "</svg>"]) + "\n"


def _cell(rows: Mapping[str, study.Row], label: str, world: World, column: int, y: int) -> Iterator[str]:
    own, base = (rows[name].at(world, "noisy/area") for name in (label, study.BASE))
    left, half, lead = EDGE + LABEL + COLUMN * column, len(COLOURS) // 2, own.value - base.value
    far = label != study.BASE and abs(lead) > FAR * math.hypot(own.error, base.error)
    ground, ink = COLOURS[half + round(half * max(-1.0, min(1.0, lead / FULL * far)))]
    yield f'<rect x="{left}" y="{y}" width="{COLUMN - 1}" height="{ROW - 1}" fill="{ground}"/>'
    told, middle = f"{own.value:.3f}" if label == study.BASE else f"{round(lead, 3) + 0.0:+.3f}", left + COLUMN / 2
    yield f'<text class="value" x="{middle:g}" y="{y + 16}" style="fill:{ink}">{told}</text>'


def text(x: float, y: float, words: str, kind: str = "", style: str = "") -> str:
    of = f' class="{kind}"' * bool(kind) + f' style="{style}"' * bool(style)
    return f'<text{of} x="{x:g}" y="{y:g}">{escape(words)}</text>'
