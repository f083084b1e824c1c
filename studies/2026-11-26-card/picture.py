"""docs/card_study.svg and its two companions: what each arm learned, against the KL of its batches."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import card
from exact_picture import STYLE

TITLE = "Mean accuracy of what is sampled for training, against the mean KL of a batch"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, FOOT = 720, 380, 56, 20, 20, 48
HELD, FIXED = "#1763a6", "#8a5a00"
Place = tuple[float, float, str]


@dataclass(frozen=True)
class Frame:
    """What is shown of a plan.

    Args:
        kl: ends of the axis, nats a token; logarithmic.
        area: ends of the other axis.
        ticks: of both.
        labels: by method and arm of the points that have one, where it stands beside its point.
        cluster: the method whose label stands for all of that arm that have none.
    """

    kl: tuple[float, float]
    area: tuple[float, float]
    ticks: tuple[Sequence[float], Sequence[float]]
    labels: Mapping[tuple[str, str], Place]
    cluster: tuple[str, str] = ("gtpo", "held")

    def x(self, kl: float) -> float:
        low, high = map(math.log, self.kl)
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (math.log(kl) - low) / (high - low), 1)

    def y(self, area: float) -> float:
        low, high = self.area
        return round(HEIGHT - FOOT - (HEIGHT - FOOT - TOP) * (area - low) / (high - low), 1)


FRAMES = {
    "card": Frame(
        (5e-4, 2.0),
        (0.0, 0.5),
        ((0.001, 0.01, 0.1, 1.0), (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)),
        {
            ("gtpo", "held"): (12, -42, "start"),
            ("tr_grpo", "held"): (-8, 20, "end"),
            ("dapo", "held_high"): (8, 14, "start"),
            ("dapo", "fixed_low"): (-24, -16, "start"),
            ("dapo", "fixed_mid"): (10, -14, "start"),
            ("dapo", "fixed_high"): (8, 5, "start"),
            ("cispo", "fixed_high"): (-8, 5, "end"),
        },
    ),
    "longer": Frame(
        (5e-5, 0.02),
        (0.34, 0.48),
        ((0.0001, 0.001, 0.01), (0.35, 0.4, 0.45)),
        {
            ("gtpo", "held"): (18, -51, "start"),
            ("tr_grpo", "held"): (-8, 5, "end"),
            ("dapo", "held_high"): (8, 5, "start"),
            ("dapo", "held_small"): (70, -41, "end"),
            ("dapo", "fixed_low"): (0, 36, "middle"),
            ("dapo", "fixed_mid"): (30, -38, "end"),
            ("dapo", "fixed_high"): (8, -26, "start"),
        },
    ),
    "habits": Frame(
        (1e-4, 0.1),
        (0.34, 0.68),
        ((0.0001, 0.001, 0.01, 0.1), (0.4, 0.5, 0.6)),
        {
            ("gtpo", "held"): (40, -24, "start"),
            ("tepo", "held"): (8, 62, "start"),
            ("tr_grpo", "held"): (-8, 22, "end"),
            ("dapo", "held_small"): (0, 78, "middle"),
            ("dapo", "fixed_lowest"): (0, 36, "middle"),
            ("dapo", "fixed_low"): (0, -26, "middle"),
            ("dapo", "fixed_mid"): (-10, -26, "middle"),
            ("dapo", "fixed_high"): (10, 14, "start"),
        },
    ),
}


def drawing(plan: Mapping[str, Any], runs: Sequence[tuple[str, str, Sequence[Mapping[str, Any]]]], base: float) -> str:
    """The picture as text.

    Args:
        runs: method, arm, and the lines of its runs.
        base: accuracy of the base model, a dashed line.
    """
    frame = FRAMES[plan["name"]]
    parts = [*_axes(frame, base)]
    for method, arm, lines in runs:
        kl = statistics.fmean(line["values"]["mean:kl"] for line in lines)
        area = [line["values"]["train-area"] for line in lines]
        x, y = frame.x(kl), frame.y(statistics.fmean(area))
        colour = FIXED if "lr" in plan["arm"][arm] else HELD
        ends = f"M{x:g} {frame.y(min(area)):g}V{frame.y(max(area)):g}"
        parts.append(f'<path d="{ends}" stroke="{colour}" stroke-opacity=".4"/>')
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="{colour}"/>')
        if (method, arm) in frame.labels:
            dx, dy, anchor = frame.labels[method, arm]
            parts.append(_text(x + dx, y + dy, _label(frame, plan, runs, method, arm), anchor))
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(TITLE)}">'
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
    return "\n".join([head, f"<style>\n{STYLE}\n</style>", ground, *parts, "</svg>"]) + "\n"


def _label(frame: Frame, plan: Mapping[str, Any], runs: Sequence[tuple[str, str, Any]], method: str, arm: str) -> str:
    together = sum(x == arm and (name, x) not in frame.labels for name, x, _ in runs)
    who = f"{together + 1} methods" if (method, arm) == frame.cluster else method
    words, _, first = card.in_words(plan, arm).partition(", ")
    return f"{who}, {words}" + (f", {first}" if arm == "held_high" else "")


def _axes(frame: Frame, base: float) -> Iterator[str]:
    for area in frame.ticks[1]:
        yield f'<path d="M{LEFT} {frame.y(area):g}H{WIDTH - RIGHT}" stroke="#ddd"/>'
        yield _text(LEFT - 8, frame.y(area) + 4, f"{area:.2g}" if area else "0", "end")
    for kl in frame.ticks[0]:
        yield _text(frame.x(kl), HEIGHT - FOOT + 18, f"{kl:g}", "middle")
    yield f'<path d="M{LEFT} {frame.y(base):g}H{WIDTH - RIGHT}" stroke="#16181a" stroke-dasharray="4 4"/>'
    yield _text(WIDTH - RIGHT, frame.y(base) + 16, "base model", "end")
    yield _text(LEFT, TOP - 6, "mean accuracy of a run's batches", "start")
    axis = "mean KL of a batch, nats a token; blue: KL held, brown: fixed learning rate; lines: all seeds"
    yield _text(LEFT, HEIGHT - 8, axis, "start")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'
