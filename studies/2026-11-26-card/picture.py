"""docs/card_study.svg: what each arm learned, against the KL of its batches."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from exact_picture import STYLE

TITLE = "Mean accuracy of what is sampled for training, against the mean KL of a batch"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, FOOT = 720, 380, 56, 20, 20, 48
KL, AREA = (5e-4, 2.0), (0.0, 0.5)
# Of the points that have one: where it stands, and what it says.
LABELS = {
    ("gtpo", "held"): ((40, -26, "middle"), "six methods, KL held"),
    ("tr_grpo", "held"): ((-8, 20, "end"), "tr_grpo, KL held"),
    ("dapo", "held_high"): ((8, 14, "start"), "dapo, KL held, high start rate"),
    ("dapo", "fixed_low"): ((0, -14, "middle"), "dapo, low rate"),
    ("dapo", "fixed_mid"): ((8, -6, "start"), "dapo, middle rate"),
    ("dapo", "fixed_high"): ((8, 5, "start"), "dapo, high rate"),
    ("cispo", "fixed_high"): ((-8, 5, "end"), "cispo, high rate"),
}
HELD, FIXED = "#1763a6", "#8a5a00"


def drawing(runs: Sequence[tuple[str, str, Sequence[Mapping[str, Any]]]], base: float) -> str:
    """The picture as text.

    Args:
        runs: method, arm, and the lines of its runs.
        base: accuracy of the base model, a dashed line.
    """
    parts = [*_axes(base)]
    for method, arm, lines in runs:
        kl = statistics.fmean(line["values"]["mean:kl"] for line in lines)
        area = [line["values"]["train-area"] for line in lines]
        x, y, held = _x(kl), _y(statistics.fmean(area)), arm.startswith("held")
        colour = HELD if held else FIXED
        parts.append(f'<path d="M{x:g} {_y(min(area)):g}V{_y(max(area)):g}" stroke="{colour}" stroke-opacity=".4"/>')
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="{colour}"/>')
        if (method, arm) in LABELS:
            (dx, dy, anchor), words = LABELS[method, arm]
            parts.append(_text(x + dx, y + dy, words, anchor))
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(TITLE)}">'
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
    return "\n".join([head, f"<style>\n{STYLE}\n</style>", ground, *parts, "</svg>"]) + "\n"


def _x(kl: float) -> float:
    low, high = map(math.log, KL)
    return round(LEFT + (WIDTH - LEFT - RIGHT) * (math.log(kl) - low) / (high - low), 1)


def _y(area: float) -> float:
    return round(HEIGHT - FOOT - (HEIGHT - FOOT - TOP) * (area - AREA[0]) / (AREA[1] - AREA[0]), 1)


def _axes(base: float) -> Iterator[str]:
    for area in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5):
        yield f'<path d="M{LEFT} {_y(area):g}H{WIDTH - RIGHT}" stroke="#ddd"/>'
        yield _text(LEFT - 8, _y(area) + 4, f"{area:.1f}", "end")
    for kl in (0.001, 0.01, 0.1, 1.0):
        yield _text(_x(kl), HEIGHT - FOOT + 18, f"{kl:g}", "middle")
    yield f'<path d="M{LEFT} {_y(base):g}H{WIDTH - RIGHT}" stroke="#16181a" stroke-dasharray="4 4"/>'
    yield _text(WIDTH - RIGHT, _y(base) - 6, "base model", "end")
    yield _text(
        LEFT, HEIGHT - 8, "mean KL of a batch, nats a token; blue: KL held, brown: fixed learning rate", "start"
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
