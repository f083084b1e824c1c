"""Sentences on methods and worlds, computed from the numbers; each names world and premise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean

from ...base.text import number
from ...page.text import percent
from ..estimate import Number
from .study import BASE, PERFECT, Row
from .training import GOAL, MOST
from .world import World

LEAST = 0.05  # of the possible gain, below which nothing is said
SMALL = 0.01  # of useful progress, likewise
FAR = 2.0  # standard errors


def helps(row: Row, worlds: Sequence[World]) -> str:
    """The worlds where the method gains most of what perfect token credit would, and its speed."""
    gains = [
        (world, x) for world in worlds if (x := row.at(world, "init/captured")).value > max(LEAST, FAR * _error(x))
    ]
    gains.sort(key=lambda gain: -gain[1].value)
    gain = (
        f"Of the possible gain it gets {_list([f'{_share(x)} in {world.name}' for world, x in gains[:3]])}."
        if gains
        else f"Nowhere does it get more of the possible gain than DAPO by {percent(LEAST)} and {FAR:g} standard errors."
    )
    ratios = sorted(x for world in worlds if math.isfinite(x := row.at(world, "middle/against").value))
    if not ratios:
        return gain
    middle = number(ratios[len(ratios) // 2], 2)
    return f"{gain} Where exact training arrives, it takes {middle} times DAPO's batches, in the median over worlds."


def fails(row: Row, base: Row, worlds: Sequence[World]) -> str:
    """The worlds where training stays below the goal, and where an update is worth less than DAPO's."""
    losses = sorted(_losses(row, base, worlds), key=lambda loss: loss[1] - loss[2])
    stays = [f"{_named(world)} {_end(row, world)}" for world in worlds if _stays(row, world)]
    behind = [f"{number(own)} for {number(theirs)} in {_named(world)}" for world, own, theirs in losses]
    sentences = [
        f"{begin} {_list(where[:3])}{f'; so it is in {len(where) - 3} more' if len(where) > 3 else ''}."
        for begin, where in (
            (f"Exact training does not reach J = {GOAL:g}: in", stays),
            ("The useful progress of an update is less than DAPO's:", behind),
        )
        if where
    ]
    return " ".join(sentences) or "In no world does it end below the goal or fall behind DAPO's update."


def _losses(row: Row, base: Row, worlds: Sequence[World]) -> Iterator[tuple[World, float, float]]:
    """(world, own, DAPO's) where useful progress lies clearly below DAPO's."""
    for world in worlds:
        own, theirs, captured = (
            row.at(world, "init/useful"),
            base.at(world, "init/useful"),
            row.at(world, "init/captured"),
        )
        if theirs.value - own.value > SMALL and captured.value < -FAR * _error(captured):
            yield world, round(own.value, 3) + 0.0, theirs.value


def why(row: Row, base: Row, worlds: Sequence[World]) -> str:
    """The largest difference from DAPO among what an update is made of: direction, place, clip."""
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


def of_world(world: World, rows: Sequence[Row]) -> Iterator[str]:
    """The possible gain in a world, the methods that gain and lose most, and those that never arrive."""
    known = {row.label: row for row in rows}
    dapo, perfect = (number(known[label].at(world, "init/useful").value) for label in (BASE, PERFECT))
    yield f"Perfect token credit would raise the useful progress of an update from DAPO's {dapo} to {perfect}."
    others = {label: row for label, row in known.items() if label not in (BASE, PERFECT)}
    if not others:
        return

    def extreme(key: str, pick: Callable[..., str]) -> tuple[str, float]:
        values = {label: round(row.at(world, key).value, 4) + 0.0 for label, row in others.items()}
        label = pick(values, key=values.__getitem__)
        return label, values[label]

    captured = {label: row.at(world, "init/captured") for label, row in others.items()}
    best, (worst, least) = max(captured, key=lambda label: captured[label].value), extreme("init/useful", min)
    most = f"{best} gets most, {_share(captured[best])}" if captured[best].value > LEAST else "none gets a part"
    yield f"Of that gain {most}. The least useful update is that of {worst}, {number(least)}."
    (keeps, high), (clips, low) = extreme("drift/toward", max), extreme("drift/toward", min)
    yield (
        f"After a drift toward the gradient the update of {keeps} is the most useful, {number(high)}, that of {clips} "
        f"the least, {number(low)}."
        if high > low
        else f"After a drift toward the gradient the useful progress of an update is {number(high)}."
    )
    stays = [
        f"{label} (J = {number(row.at(world, 'middle/J').value, 2)})"
        for label, row in known.items()
        if _stays(row, world)
    ]
    yield (
        f"Exact training ends below J = {GOAL:g} with {_list(stays)}."
        if stays
        else "With all of them training arrives."
    )


def against(rows: Sequence[Row]) -> None:
    """Adds to every cell the batches of exact training in multiples of DAPO's."""
    base = next(row for row in rows if row.label == BASE)
    for row in rows:
        for world, cell in row.cells.items():
            own, theirs = (r.cells[world].numbers["middle/batches"].value for r in (row, base))
            cell.numbers["middle/against"] = Number(own / theirs)


def _stays(row: Row, world: World) -> bool:
    return row.at(world, "middle/batches").value == math.inf


def _end(row: Row, world: World) -> str:
    """The mean reward at which exact training ended."""
    J = number(row.at(world, "middle/J").value, 2)
    ran_out = len(row.cells[world.name].curve) > MOST
    return f"it is at J = {J} after {MOST} batches" if ran_out else f"it stands still at J = {J}"


def _named(world: World) -> str:
    return f"{world.name} (where “{world.premise}” is false)" if world.holds is False else world.name


def _error(x: Number) -> float:
    return x.error if math.isfinite(x.error) else 0.0


def _share(x: Number) -> str:
    return f"{100 * x.value:.0f} % (± {100 * _error(x):.0f})"


def _list(words: Sequence[str]) -> str:
    """A, B and C."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
