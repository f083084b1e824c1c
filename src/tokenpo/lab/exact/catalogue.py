"""The measures by name, as tables, page and command line show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...base.text import number
from .study import Cell


@dataclass(frozen=True)
class Measure:
    """One number of a method in a world.

    Args:
        key: its name in `Cell.numbers`.
        title: in a heading.
        meaning: one sentence, with the unit.
        scale: how a page colours it: around a value, from 0 to 1, or not at all.
        middle: the value in the middle of the colours.
        reach: distance from the middle at which the colours end.
    """

    key: str
    title: str
    meaning: str
    scale: Literal["around", "low", "none"] = "none"
    middle: float = 0.0
    reach: float = 1.0


_AT = {"init": "at the initial policy", "late": "at J = 0.95", "stuck": "at J = 0.03"}


def _fixed(name: str) -> list[Measure]:
    """The measures of an update that are worth a column at every policy."""
    where = _AT[name]
    return [
        Measure(
            f"{name}/useful", f"useful progress, {where}",
            "Progress of an update of 64 rollouts along the true gradient, per step of its root mean square; 1 is all.",
            "around", 0.5, 0.5,
        ),
        Measure(
            f"{name}/cosine", f"cosine, {where}",
            "Of the expected update with the true gradient: 1 is unbiased in direction.", "around", 0.0, 1.0,
        ),
    ]  # fmt: skip


def _trained(name: str, size: str) -> Measure:
    return Measure(
        f"{name}/batches", f"batches to J = 0.9, {size} steps",
        "Rollout batches of four updates in exact training; ∞ where the goal is not reached, with the reward that is.",
    )  # fmt: skip


CATALOGUE: dict[str, Measure] = {
    measure.key: measure
    for measure in (
        Measure("init/captured", "captured", "What the method gets of what perfect token credit would gain on DAPO: "
                "0 is DAPO, 1 is perfect, below 0 is worse than DAPO.", "around", 0.0, 1.0),
        *_fixed("init"),
        Measure("init/single", "single-batch cosine",
                "Mean cosine of one update of 64 rollouts with the true gradient, whatever its length.",
                "around", 0.5, 0.5),
        Measure("drift/toward", "useful after a drift toward",
                "Useful progress once the policy is 0.01 nats a token further up the true gradient than the one that "
                "sampled; the unit is that of useful progress.", "around", 0.5, 0.5),
        Measure("drift/away", "useful after a drift away", "The same after a drift down the true gradient.",
                "around", 0.5, 0.5),
        Measure("drift/random", "useful after a random drift", "The same after a drift in a random direction.",
                "around", 0.5, 0.5),
        _trained("small", "small"), _trained("middle", "middle"), _trained("large", "large"),
        Measure("noisy/area", "area under the reward, noisy",
                "Mean of the mean reward over 30 batches of 256 rollouts, middle steps, four seeds.",
                "around", 0.5, 0.5),
        Measure("middle/entropy", "entropy at J = 0.9", "Nats a token when exact training passes J = 0.9."),
        Measure("middle/length", "length at J = 0.9", "Mean tokens of a response when exact training passes J = 0.9."),
        Measure("middle/sound", "sound share at J = 0.9",
                "Share of the reward that is earned by reasoning when exact training passes J = 0.9."),
        *_fixed("late"), *_fixed("stuck"),
        Measure("init/snr", "signal to noise", "Power of the expected update over that of its noise, 64 rollouts."),
        Measure("init/deciding", "share on decisions",
                "Share of the squared update on states whose token changes what can be expected.", "around", 0.5, 0.5),
        Measure("init/entropy", "entropy slope", "Nats a token that the entropy moves by in a step of length 1."),
        Measure("init/length", "length slope", "Tokens that the mean length moves by in a step of length 1."),
    )
}  # fmt: skip
SHOWN = ("init/captured", "drift/toward", "middle/batches")


def told(cell: Cell, measure: Measure) -> tuple[str, str]:
    """The value and what stands below it: its standard error, or the reward at which a run stays."""
    found = cell.numbers.get(measure.key)
    if found is None or found.value != found.value:
        return "–", ""
    if found.value == float("inf"):
        return "∞", f"J {number(cell.numbers[measure.key.replace('batches', 'J')].value)}"
    return number(
        round(found.value, 3) + 0.0
    ), f"±{number(round(found.error, 6), 2)}" if found.error == found.error else ""
