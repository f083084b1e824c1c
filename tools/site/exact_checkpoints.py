"""Writes the tables of docs/exact.md, "At two checkpoints", from docs/exact_step*.json and docs/exact.json; --check:
whether they are current.

python tools/site/exact_checkpoints.py
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from layout import filled, write

from tokenpo.base.text import number
from tokenpo.lab import gradients
from tokenpo.lab.exact import study
from tokenpo.lab.exact.worlds import WORLDS
from tokenpo.lab.gradients import Judged

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "exact.md"
STEPS = (0, 10)
DRAWS, COVER = 4000, 95  # bootstrap samples; of the interval, %
# What is compared: name, measure at the checkpoint, measure in the worlds.
COMPARED = (
    ("on policy", "useful", "init/useful"),
    ("after 8 minibatches, a drift toward", "after/useful", "drift/toward"),
    ("after 8 minibatches, a drift away", "after/useful", "drift/away"),
)


def page() -> str:
    """The page with its tables of today's numbers."""
    found = {step: gradients.load(DOCS / f"exact_step{step}.json") for step in STEPS}
    tables = {f"step {step}": partial(_table, about, rows) for step, (about, rows) in found.items()}
    agreement = partial(_agreements, {step: rows for step, (_, rows) in found.items()})
    return filled(PAGE.read_text(encoding="utf-8"), {"agreement": agreement, **tables})


def _agreements(found: Mapping[int, Mapping[str, Judged]]) -> str:
    worlds = {label: row for label, row in study.load(DOCS / "exact.json").items() if label != study.PERFECT}
    head = "| at step | here, and in the worlds | methods | ρ | lowest and highest world |"
    lines = [
        _agreement(step, name, rows, at, worlds, inside)
        for step, rows in found.items()
        for name, at, inside in COMPARED
    ]
    return "\n".join(["", head, "| --- | --- | --- | --- | --- |", *lines, ""])


def _agreement(
    step: int, name: str, rows: Mapping[str, Judged], at: str, worlds: Mapping[str, study.Row], inside: str
) -> str:
    both = [label for label in rows if label in worlds]
    here = [rows[label].numbers[at].value for label in both]
    there = np.array([[worlds[label].cells[world].numbers[inside].value for world in WORLDS] for label in both])
    rho, low, high = interval(here, there.mean(1).tolist())
    single = {world: spearman(here, there[:, place].tolist()) for place, world in enumerate(WORLDS)}
    least, most = min(single, key=lambda w: single[w]), max(single, key=lambda w: single[w])
    ends = f"{single[least]:.2f} {least}, {single[most]:.2f} {most}"
    return f"| {step} | {name} | {len(both)} | {rho:.2f} ({low:.2f} to {high:.2f}) | {ends} |"


def _table(about: Mapping, rows: Mapping[str, Judged]) -> str:
    shown = [key for key in gradients.TITLES if any(key in row.numbers for row in rows.values())]
    lines = [
        f"\nMean reward {about['reward']:.3g}. {gradients.context(about)} ± is one standard error.\n",
        "| method | " + " | ".join(gradients.TITLES[key] for key in shown) + " |",
        "| --- |" + " ---: |" * len(shown),
    ]
    for label in sorted(rows, key=lambda x: -rows[x].numbers["useful"].value):
        lines.append(f"| `{label}` | " + " | ".join(_told(rows[label].numbers.get(key)) for key in shown) + " |")
    return "\n".join([*lines, ""])


def _told(x: study.Number | None) -> str:
    if x is None or math.isnan(x.value):
        return "–"
    value = number(round(x.value, 3) + 0.0)
    return f"{value} ± {number(x.error, 1)}" if x.error > 1e-5 else value


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    """Rank correlation; equal values share the mean of their ranks.

    >>> round(spearman([1, 2, 3, 4], [10, 20, 40, 30]), 6), spearman([1, 1, 2], [1, 2, 3])
    (0.8, 0.8660254037844387)
    """
    a, b = _ranks(x), _ranks(y)
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale else math.nan


def interval(x: Sequence[float], y: Sequence[float]) -> tuple[float, float, float]:
    """ρ, and the ends of the percentile interval of a bootstrap over pairs."""
    draws, pairs = np.random.default_rng(0), np.array([x, y])
    found = [spearman(*pairs[:, draws.integers(len(x), size=len(x))]) for _ in range(DRAWS)]
    low, high = np.nanpercentile(found, [(100 - COVER) / 2, (100 + COVER) / 2])
    return spearman(x, y), float(low), float(high)


def _ranks(x: Sequence[float]) -> np.ndarray:
    # Files keep four digits: what agrees to them is equal.
    _, place, count = np.unique(np.round(x, 4), return_inverse=True, return_counts=True)
    last = count.cumsum()
    return ((last - count + 1 + last) / 2)[place]


if __name__ == "__main__":
    sys.exit(write(PAGE, page()))
