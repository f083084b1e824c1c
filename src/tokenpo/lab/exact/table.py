"""The measures of a study by name, and the study in a terminal: for each measure a table of methods x worlds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from ...base.text import number
from ...page import table
from ...page.table import Cell, Table, print_parts
from ...page.text import visible
from .study import BASE, PERFECT, Row


@dataclass(frozen=True)
class Measure:
    """One number of a method in a world: its name in `Cell.numbers`, its heading, and a sentence with the unit.

    Args:
        ends: the worst and the best value, as ends of the page's colours; None for no colours.
    """

    key: str
    title: str
    meaning: str
    ends: tuple[float, float] | None = None


_SHARE, _AROUND_0 = (0.0, 1.0), (-1.0, 1.0)
_AT = {"init": "at the initial policy", "late": "at J = 0.95", "stuck": "at J = 0.03"}


def _fixed(name: str) -> list[Measure]:
    """The measures of an update that are shown for every policy."""
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
        *_fixed("init"),
        Measure("init/single", "single-batch cosine",
                "Mean cosine of one update of 64 rollouts with the true gradient, whatever its length.", _SHARE),
        Measure("drift/toward", "useful after a drift toward",
                "Useful progress once the policy is 0.01 nats a token further up the true gradient than the one that "
                "sampled; the unit is that of useful progress.", _SHARE),
        Measure("drift/away", "useful after a drift away", "The same after a drift down the true gradient.", _SHARE),
        Measure("drift/random", "useful after a random drift", "The same after a drift in a random direction.", _SHARE),
        Measure("noisy/area", "area under the reward, noisy",
                "Mean reward over 30 batches of noisy training in a network, at the best step size.", _SHARE),
        Measure("noisy/size", "best step size", "The step size of noisy training with the largest area."),
        Measure("noisy/kl", "KL of a batch",
                "From the policy before a batch of noisy training to the one after its updates, nats a token."),
        Measure("noisy/batches", "batches to J = 0.9, noisy",
                "Rollout batches of noisy training; ∞ unless every run arrives, with the reward at the end."),
        Measure("train/batches", "batches to J = 0.9", "Rollout batches of expected training; ∞ where it ends below. "
                "Steps of one size: no measure of speed."),
        Measure("train/entropy", "entropy at J = 0.9", "Nats a token when expected training passes J = 0.9."),
        Measure("train/length", "length at J = 0.9", "Mean tokens of a response as expected training passes J = 0.9."),
        Measure("train/sound", "sound share at J = 0.9",
                "Share of the reward that is earned by reasoning when expected training passes J = 0.9."),
        *_fixed("late"), *_fixed("stuck"),
        Measure("init/snr", "signal to noise", "Power of the expected update over that of its noise, 64 rollouts."),
        Measure("init/deciding", "share on decisions",
                "Share of the squared update on states whose token changes what can be expected.", _SHARE),
        Measure("init/entropy", "entropy slope", "Nats a token that the entropy moves by in a step of length 1."),
        Measure("init/length", "length slope", "Tokens that the mean length moves by in a step of length 1."),
        Measure("init/captured", "captured", "The method's lead over DAPO in useful progress, as a share of the lead "
                "that exact credit has. Exact credit is not the maximum, and an update's progress says little about "
                "training: no score of a method.", _AROUND_0),
    )
}  # fmt: skip
ROUNDING = 1e-4  # rounding of the numbers in a file
SHOWN = ("init/useful", "drift/toward", "noisy/area")


def show(rows: Sequence[Row], worlds: Sequence[str], measures: Iterable[str], stream: TextIO) -> None:
    """Prints for each measure a table and its meaning, and at the end the verdicts of all measures."""
    parts: list[Table | str] = []
    verdicts: list[str] = []
    for key in measures:
        measure = CATALOGUE[key]
        body = [
            table.Row(visible(row.label, limit=60), [cell(row, w, measure) for w in worlds], apart=row.label == PERFECT)
            for row in rows
        ]
        parts += [Table(heading(worlds), body, title=measure.title), measure.meaning, ""]
        verdicts += filter(None, [verdict(rows, worlds, measure)])
    print_parts(parts + verdicts, stream)


def verdict(rows: Sequence[Row], worlds: Sequence[str], measure: Measure) -> str:
    """A sentence: in how many worlds each method is better or worse than DAPO by two standard errors.

    With more than four methods: how many are better in most worlds, and which most often. "" if the measure has no
    better direction.
    """
    if (measure.ends is None and not measure.key.endswith("/batches")) or measure.key == "init/deciding":
        return ""
    base = next(row for row in rows if row.label == BASE)
    won = {}
    for row in rows:
        if row.label not in (BASE, PERFECT):
            signs = [_sign(row, base, world, measure) for world in worlds]
            won[visible(row.label, limit=60)] = signs.count(1), signs.count(-1)
    if not won:
        return ""
    count = f"{len(worlds)} world{'s' * (len(worlds) > 1)}"
    if len(won) > 4:
        most = max(won, key=lambda label: won[label])
        many = sum(better > len(worlds) / 2 for better, _ in won.values())
        text = f"{many} of {len(won)} methods are better than DAPO in most of {count}; most often {most}"
        text += f", in {won[most][0]}"
    else:
        each = (f"{label} is better than DAPO in {b} and worse in {w} of {count}" for label, (b, w) in won.items())
        text = "; ".join(each)
    return f"{measure.title}: {text}."


def _sign(row: Row, base: Row, world: str, measure: Measure) -> int:
    """1 if the row is better than DAPO by more than two standard errors, −1 if it is worse, else 0."""
    x, y = (r.cells[world].numbers.get(measure.key) for r in (row, base))
    if x is None or y is None or x.value == y.value:
        return 0
    noise = math.hypot(*(0.0 if math.isnan(n.error) or math.isinf(n.value) else n.error for n in (x, y)))
    if not abs(x.value - y.value) > max(2 * noise, ROUNDING):
        return 0
    return 1 if (x.value > y.value) == (measure.ends is not None) else -1


def heading(worlds: Iterable[str]) -> list[str]:
    """Headings of a table; spaces in place of underscores let names wrap, so that twelve columns fit."""
    return ["method", *(world.replace("_", " ") for world in worlds)]


def cell(row: Row, world: str, measure: Measure, kind: str = "") -> Cell:
    """A cell with the value above its standard error; ∞ above the reward at which the run ends."""
    numbers = row.cells[world].numbers if world in row.cells else {}
    x = numbers.get(measure.key)
    if x is None:
        return Cell("–" if world in row.cells else "")
    if x.value == math.inf:
        return Cell("∞", f"J {number(numbers[measure.key.replace('batches', 'J')].value)}", kind=kind)
    return Cell(x.text, x.note, kind=kind)
