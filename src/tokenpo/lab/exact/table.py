"""The measures of a study by name, and the study in a terminal: methods x worlds, a table for each measure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from ...base.text import number
from ...page import table
from ...page.table import Cell, Table, print_parts
from ...page.text import visible
from .study import PERFECT, Row


@dataclass(frozen=True)
class Measure:
    """One number of a method in a world.

    Args:
        key: its name in `Cell.numbers`.
        title: in a heading.
        meaning: one sentence, with the unit.
        ends: of the page's colours, the worst and the best value; None for no colours.
    """

    key: str
    title: str
    meaning: str
    ends: tuple[float, float] | None = None


_SHARE, _AROUND_0 = (0.0, 1.0), (-1.0, 1.0)
_AT = {"init": "at the initial policy", "late": "at J = 0.95", "stuck": "at J = 0.03"}


def _fixed(name: str) -> list[Measure]:
    """The measures of an update that are worth a column at every policy."""
    return [
        Measure(
            f"{name}/useful", f"useful progress, {_AT[name]}",
            "Progress of an update of 64 rollouts along the true gradient, per step of its root mean square; 1 is all.",
            _SHARE,
        ),
        Measure(
            f"{name}/cosine", f"cosine, {_AT[name]}",
            "Of the expected update with the true gradient: 1 is unbiased in direction.", _AROUND_0,
        ),
    ]  # fmt: skip


CATALOGUE: dict[str, Measure] = {
    measure.key: measure
    for measure in (
        Measure("init/captured", "captured", "What the method gets of what perfect token credit would gain on DAPO: "
                "0 is DAPO, 1 is perfect, below 0 is worse than DAPO.", _AROUND_0),
        *_fixed("init"),
        Measure("init/single", "single-batch cosine",
                "Mean cosine of one update of 64 rollouts with the true gradient, whatever its length.", _SHARE),
        Measure("drift/toward", "useful after a drift toward",
                "Useful progress once the policy is 0.01 nats a token further up the true gradient than the one that "
                "sampled; the unit is that of useful progress.", _SHARE),
        Measure("drift/away", "useful after a drift away", "The same after a drift down the true gradient.", _SHARE),
        Measure("drift/random", "useful after a random drift", "The same after a drift in a random direction.", _SHARE),
        *(Measure(f"{size}/batches", f"batches to J = 0.9, {size} steps", "Rollout batches of four updates in exact "
                  "training; ∞ where the goal is not reached, with the reward that is.")
          for size in ("small", "middle", "large")),
        Measure("noisy/area", "area under the reward, noisy",
                "Mean of the mean reward over 30 batches of 256 rollouts, middle steps, four seeds.", _SHARE),
        Measure("middle/entropy", "entropy at J = 0.9", "Nats a token when exact training passes J = 0.9."),
        Measure("middle/length", "length at J = 0.9", "Mean tokens of a response when exact training passes J = 0.9."),
        Measure("middle/sound", "sound share at J = 0.9",
                "Share of the reward that is earned by reasoning when exact training passes J = 0.9."),
        *_fixed("late"), *_fixed("stuck"),
        Measure("init/snr", "signal to noise", "Power of the expected update over that of its noise, 64 rollouts."),
        Measure("init/deciding", "share on decisions",
                "Share of the squared update on states whose token changes what can be expected.", _SHARE),
        Measure("init/entropy", "entropy slope", "Nats a token that the entropy moves by in a step of length 1."),
        Measure("init/length", "length slope", "Tokens that the mean length moves by in a step of length 1."),
    )
}  # fmt: skip
SHOWN = ("init/captured", "drift/toward", "middle/batches")


def show(rows: Sequence[Row], worlds: Sequence[str], measures: Iterable[str], stream: TextIO) -> None:
    """A table for each measure, and what it means."""
    parts: list[Table | str] = []
    for key in measures:
        measure = CATALOGUE[key]
        body = [
            table.Row(visible(row.label, limit=60), [cell(row, w, measure) for w in worlds], apart=row.label == PERFECT)
            for row in rows
        ]
        parts += [Table(heading(worlds), body, title=measure.title), measure.meaning, ""]
    print_parts(parts, stream, least=24 + 11 * len(worlds))


def heading(worlds: Iterable[str]) -> list[str]:
    """A name breaks between its words, so that twelve columns fit."""
    return ["method", *(world.replace("_", " ") for world in worlds)]


def cell(row: Row, world: str, measure: Measure, kind: str = "") -> Cell:
    """The value above its standard error, or above the reward at which a run stays."""
    numbers = row.cells[world].numbers if world in row.cells else {}
    x = numbers.get(measure.key)
    if x is None:
        return Cell("–" if world in row.cells else "")
    if x.value == math.inf:
        return Cell("∞", f"J {number(numbers[measure.key.replace('batches', 'J')].value)}", kind=kind)
    return Cell(x.text, x.note, kind=kind)
