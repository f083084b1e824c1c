"""Sentences on methods and worlds, computed from the numbers; each names world and premise."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from ...base.text import number
from ...page.text import percent
from .study import BASE, PERFECT, Cell, Number, Row
from .training import GOAL, MOST
from .world import World

LEAST = 0.05  # of the possible gain, below which nothing is said
SMALL = 0.01  # of useful progress, likewise
FAR = 2.0  # standard errors


def helps(row: Row, worlds: Sequence[World]) -> str:
    """The worlds where the method gains most of what perfect token credit would, and its speed."""
    gains = sorted(_beyond(row, worlds), key=lambda pair: -pair[1].value)
    gain = (
        f"Of the possible gain it gets {_list([f'{_share(x)} in {world.name}' for world, x in gains[:3]])}."
        if gains
        else f"Nowhere does it get more of the possible gain than DAPO by {percent(LEAST)} and {FAR:g} standard errors."
    )
    return f"{gain} {_speed(row, worlds)}".strip()


def fails(row: Row, base: Row, worlds: Sequence[World]) -> str:
    """The worlds where training stays below the goal, and where an update is worth less than DAPO's."""
    stays = [world for world in worlds if _stays(_cell(row, world))]
    losses = sorted(_behind(row, base, worlds), key=lambda loss: loss[1] - loss[2])
    sentences = []
    if stays:
        where = _list([f"{_named(world)} {_end(_cell(row, world))}" for world in stays[:3]])
        more = f"; so it is in {len(stays) - 3} more" if len(stays) > 3 else ""
        sentences.append(f"Exact training does not reach J = {GOAL:g}: in {where}{more}.")
    if losses:
        where = _list([f"{number(own)} for {number(theirs)} in {_named(world)}" for world, own, theirs in losses[:3]])
        more = f"; so it is in {len(losses) - 3} more" if len(losses) > 3 else ""
        sentences.append(f"The useful progress of an update is less than DAPO's: {where}{more}.")
    return " ".join(sentences) or "In no world does it end below the goal or fall behind DAPO's update."


def why(row: Row, base: Row, worlds: Sequence[World]) -> str:
    """The largest difference from DAPO among what an update is made of: direction, place, clip."""
    blind = [world.name for world in worlds if _at(row, world, "init/deciding").value < 1e-9]
    if blind:
        return f"Its update leaves the tokens that decide exactly as they are in {_list(blind)}."
    bent = min(worlds, key=lambda world: _at(row, world, "init/cosine").value)
    cosine = _at(row, bent, "init/cosine")
    if cosine.value < 0.98 - FAR * _error(cosine):
        return (
            f"Its expected update points elsewhere than the gradient of the reward: cosine "
            f"{number(round(cosine.value, 3))} (± {number(_error(cosine), 1)}) in {bent.name}."
        )
    moved = {key: _mean(row, worlds, key) - _mean(base, worlds, key) for key in ("drift/toward", "init/deciding")}
    if max(map(abs, moved.values())) < 0.02:
        return "On policy its expected update is the gradient's direction, and its noise and its clip are DAPO's."
    if abs(moved["drift/toward"]) >= abs(moved["init/deciding"]):
        now, then = _mean(row, worlds, "drift/toward"), _mean(base, worlds, "drift/toward")
        way = "more" if now > then else "less"
        return (
            f"Its clip leaves {way} of an update once the policy has moved toward the gradient: useful progress "
            f"{number(now)} there in the mean over worlds, DAPO's is {number(then)}."
        )
    now, then = _mean(row, worlds, "init/deciding"), _mean(base, worlds, "init/deciding")
    return (
        f"It puts {percent(now)} of the squared update on tokens that decide, in the mean over worlds; "
        f"DAPO puts {percent(then)} there."
    )


def of_world(world: World, rows: Sequence[Row]) -> Iterator[str]:
    """The possible gain in a world, the methods that gain and lose most, and those that never arrive."""
    known = {row.label: row for row in rows}
    dapo, perfect = (_at(known[label], world, "init/useful").value for label in (BASE, PERFECT))
    yield (
        f"Perfect token credit would raise the useful progress of an update from DAPO's {number(dapo)} to "
        f"{number(perfect)}."
    )
    others = [row for row in rows if row.label not in (BASE, PERFECT)]
    if not others:
        return
    captured = {row.label: _at(row, world, "init/captured") for row in others}
    useful = {row.label: round(_at(row, world, "init/useful").value, 4) + 0.0 for row in others}
    best, worst = max(captured, key=lambda x: captured[x].value), min(useful, key=lambda x: useful[x])
    most = f"{best} gets most, {_share(captured[best])}" if captured[best].value > LEAST else "none gets a part"
    yield f"Of that gain {most}. The least useful update is that of {worst}, {number(useful[worst])}."
    drifted = {row.label: round(_at(row, world, "drift/toward").value, 4) + 0.0 for row in others}
    keeps, clips = max(drifted, key=lambda x: drifted[x]), min(drifted, key=lambda x: drifted[x])
    yield (
        f"After a drift toward the gradient the update of {keeps} is the most useful, {number(drifted[keeps])}, that "
        f"of {clips} the least, {number(drifted[clips])}."
        if drifted[keeps] > drifted[clips]
        else f"After a drift toward the gradient the useful progress of an update is {number(drifted[keeps])}."
    )
    ends = {row.label: _at(row, world, "middle/J").value for row in rows if _stays(_cell(row, world))}
    stays = _list([f"{label} (J = {number(J, 2)})" for label, J in ends.items()])
    yield f"Exact training ends below J = {GOAL:g} with {stays}." if ends else "With all of them training arrives."


def _beyond(row: Row, worlds: Sequence[World]) -> Iterator[tuple[World, Number]]:
    """(world, captured) where the captured share lies clearly above DAPO's."""
    for world in worlds:
        x = _at(row, world, "init/captured")
        if x.value > max(LEAST, FAR * _error(x)):
            yield world, x


def _behind(row: Row, base: Row, worlds: Sequence[World]) -> Iterator[tuple[World, float, float]]:
    """(world, own, DAPO's) where useful progress lies clearly below DAPO's."""
    for world in worlds:
        own, theirs = (_at(r, world, "init/useful").value for r in (row, base))
        x = _at(row, world, "init/captured")
        if theirs - own > SMALL and x.value < -FAR * _error(x):
            yield world, round(own, 3) + 0.0, theirs


def _speed(row: Row, worlds: Sequence[World]) -> str:
    ratios = sorted(x for world in worlds if math.isfinite(x := _at(row, world, "middle/against").value))
    if not ratios:
        return ""
    middle = ratios[len(ratios) // 2]
    return (
        f"Where exact training arrives, it takes {number(middle, 2)} times DAPO's batches, in the median over worlds."
    )


def against(rows: Sequence[Row]) -> None:
    """Adds to every cell the batches of exact training in multiples of DAPO's."""
    base = next(row for row in rows if row.label == BASE)
    for row in rows:
        for world, cell in row.cells.items():
            own, theirs = (r.cells[world].numbers["middle/batches"].value for r in (row, base))
            cell.numbers["middle/against"] = Number(own / theirs)


def _stays(cell: Cell) -> bool:
    return cell.numbers["middle/batches"].value == math.inf


def _end(cell: Cell) -> str:
    """The mean reward at which exact training ended."""
    J = number(cell.numbers["middle/J"].value, 2)
    return f"it is at J = {J} after {MOST} batches" if len(cell.curve) > MOST else f"it stands still at J = {J}"


def _named(world: World) -> str:
    if world.holds is None or world.holds:
        return world.name
    return f"{world.name} (where “{world.premise}” is false)"


def _cell(row: Row, world: World) -> Cell:
    return row.cells[world.name]


def _at(row: Row, world: World, key: str) -> Number:
    return _cell(row, world).numbers[key]


def _mean(row: Row, worlds: Sequence[World], key: str) -> float:
    return sum(_at(row, world, key).value for world in worlds) / len(worlds)


def _error(x: Number) -> float:
    return x.error if math.isfinite(x.error) else 0.0


def _share(x: Number) -> str:
    return f"{100 * x.value:.0f} % (± {100 * _error(x):.0f})"


def _list(words: Iterator[str] | Sequence[str] | Mapping[str, object]) -> str:
    """A, B and C."""
    *first, last = list(words) or ["none"]
    return f"{', '.join(first)} and {last}" if first else last
