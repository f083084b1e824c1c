"""Sentences of the method pages: what exact worlds say of a method beside DAPO."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from tokenpo.base.text import number
from tokenpo.lab.estimate import Number
from tokenpo.lab.exact.study import Row
from tokenpo.lab.exact.training import GOAL, MOST
from tokenpo.lab.exact.world import World
from tokenpo.page.text import percent

SMALL = 0.01  # differences in useful progress below this are not reported
FAR = 2.0  # nor those below this number of standard errors


def helps(row: Row, base: Row, worlds: Sequence[World]) -> str:
    """A sentence about the worlds where the method's update is more useful than DAPO's."""
    gains = [(world, *(r.at(world, "init/useful") for r in (row, base))) for world in worlds]
    gains = [(w, x, y) for w, x, y in gains if x.value - y.value > max(SMALL, FAR * math.hypot(_error(x), _error(y)))]
    if not gains:
        return f"Nowhere is its update more useful than DAPO's by {SMALL:g} and {FAR:g} standard errors."
    gains.sort(key=lambda gain: gain[2].value - gain[1].value)
    named = [f"{number(round(x.value, 3))} for {number(round(y.value, 3))} in {w.name}" for w, x, y in gains[:3]]
    return f"The useful progress of an update is more than DAPO's: {_list(named)}."


def trains(row: Row, base: Row, worlds: Sequence[World]) -> str:
    """A sentence that compares noisy training at the best step size with DAPO's; "" if it was not run."""
    if any("noisy/area" not in r.cells[world.name].numbers for r in (row, base) for world in worlds):
        return ""
    own, theirs = (fmean(r.at(world, "noisy/area").value for world in worlds) for r in (row, base))
    return f"The area under the reward is {own:.3f} in the mean over worlds, DAPO's {theirs:.3f}."


def fails(row: Row, base: Row, worlds: Sequence[World]) -> str:
    """Sentences about the worlds where training stays below the goal, or an update is less useful than DAPO's."""
    losses, stays = [], []
    for world in worlds:
        x, y = (r.at(world, "init/useful") for r in (row, base))
        if y.value - x.value > max(SMALL, FAR * math.hypot(_error(x), _error(y))):
            losses.append((world, round(x.value, 3) + 0.0, y.value))
        if _stays(row, world):
            J, ran_out = number(row.at(world, "train/J").value, 2), len(row.cells[world.name].curve) > MOST
            end = f"it is at J = {J} after {MOST} batches" if ran_out else f"it stands still at J = {J}"
            stays.append(f"{_named(world)} {end}")
    losses.sort(key=lambda loss: loss[1] - loss[2])
    behind = [f"{number(own)} for {number(theirs)} in {_named(world)}" for world, own, theirs in losses]
    sentences = [
        f"{begin} {_list(where[:3])}{f'; so it is in {len(where) - 3} more' if len(where) > 3 else ''}."
        for begin, where in (
            (f"Expected training does not reach J = {GOAL:g}: in", stays),
            ("The useful progress of an update is less than DAPO's:", behind),
        )
        if where
    ]
    return " ".join(sentences) or "In no world does it end below the goal or fall behind DAPO's update."


def why(row: Row, base: Row, worlds: Sequence[World]) -> str:
    """A sentence about the largest difference from DAPO's update: in direction, tokens or clip."""
    if blind := [world.name for world in worlds if row.at(world, "init/deciding").value < 1e-9]:
        return f"Its update leaves the tokens that decide exactly as they are in {_list(blind)}."
    bent = min(worlds, key=lambda world: row.at(world, "init/cosine").value)
    cosine = row.at(bent, "init/cosine")
    if cosine.value < 0.98 - FAR * _error(cosine):
        return (
            f"Its expected update points elsewhere than the gradient of the reward: cosine "
            f"{number(round(cosine.value, 3))} (± {number(_error(cosine), 1)}) in {bent.name}."
        )
    (drift, dapos), (deciding, its) = (
        [fmean(r.at(world, key).value for world in worlds) for r in (row, base)]
        for key in ("drift/toward", "init/deciding")
    )
    if max(abs(drift - dapos), abs(deciding - its)) < 0.02:
        return "On policy its expected update is the gradient's direction, and its noise and its clip are DAPO's."
    if abs(drift - dapos) >= abs(deciding - its):
        return (
            f"Its clip leaves {'more' if drift > dapos else 'less'} of an update once the policy has moved toward the "
            f"gradient: useful progress {number(drift)} there in the mean over worlds, DAPO's is {number(dapos)}."
        )
    return (
        f"It puts {percent(deciding)} of the squared update on tokens that decide, in the mean over worlds; "
        f"DAPO puts {percent(its)} there."
    )


def _stays(row: Row, world: World) -> bool:
    return row.at(world, "train/batches").value == math.inf


def _named(world: World) -> str:
    return f"{world.name} (where “{world.premise}” is false)" if world.holds is False else world.name


def _error(x: Number) -> float:
    return x.error if math.isfinite(x.error) else 0.0


def _list(words: Sequence[str]) -> str:
    """A, B and C."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
