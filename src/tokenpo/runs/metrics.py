"""metrics.jsonl of any length: curves thinned while they are read, some whole lines for a table.

The log is read twice: first the step and the place of every line (16 bytes each), as a resumed run may have logged a
step twice and the later line counts; then the lines that count, by step.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..base.errors import TokenPOError
from ..base.files import opened
from ..base.jsonl import parsed, whole_lines

Number = float | None
NOTE = "note/"  # begins the metrics that count the notes of the verifier
# Held-out mean reward -> the accuracy that it equals where every reward is 1 for a right and 0 for a wrong response:
# there the metrics leave it out.
REWARDS: Mapping[str, str] = {
    "eval/reward": "eval/accuracy",
    "eval/reward_low": "eval/low",
    "eval/reward_high": "eval/high",
    "eval/avg_reward": "eval/avg",
    "eval/avg_reward_low": "eval/avg_low",
    "eval/avg_reward_high": "eval/avg_high",
}
EXACT = 10_000  # points up to which a series is kept whole
BUCKETS = 298  # most points of a longer one: with its first point fewer than a chart is wide
SAMPLED = 120  # whole lines kept
CHUNK = 4_096  # lines in memory at a time
_LOGGED_TYPES = {float, int, bool, type(None)}
X = TypeVar("X")


class Series:
    """The points of one metric, ascending in steps; beyond `EXACT` of them, buckets of neighbours.

    Args:
        exact: keep every point, whatever their number.
    """

    def __init__(self, exact: bool = False) -> None:
        self._exact, self._width = exact, 1
        self._parts: list[np.ndarray] = []  # [n, 5]: last step, sum, count of numbers, lowest, highest
        self._ends: list[tuple[float, Number]] = []  # the first point and the last

    def add(self, points: np.ndarray) -> None:
        """Appends points [n, 2] of step and value, NaN where the value was not a finite number."""
        step, value = points.T
        known = ~np.isnan(value)
        columns = (step, np.where(known, value, 0.0), known, *(np.where(known, value, x) for x in (np.inf, -np.inf)))
        self._parts.append(_merged(np.column_stack(columns), self._width))
        self._ends = [*self._ends[:1], *((x, None if y != y else y) for x, y in points[[0, -1]].tolist())]
        self._ends = [self._ends[0], self._ends[-1]]
        while not self._exact and sum(map(len, self._parts)) > (BUCKETS if self.thinned else EXACT):
            self._parts = [_merged(np.concatenate(self._parts), 2)]
            self._width *= 2

    @property
    def thinned(self) -> bool:
        return self._width > 1

    @property
    def total(self) -> float:
        return sum(y for part in self._parts for y in part[:, 1].tolist())

    @property
    def points(self) -> list[tuple[float, Number]]:
        """(step, value), None where there was no number; thinned: the first, means of buckets, the last."""
        rows = np.concatenate(self._parts)[:, :3].tolist()
        points = [(x, total / count if count else None) for x, total, count in rows]
        return [self._ends[0], *points[:-1], self._ends[1]] if self.thinned else points

    @property
    def extremes(self) -> list[tuple[float, Number, Number]]:
        """(step, lowest, highest) at the steps of `points`; both are the value where nothing was thinned."""
        rows = np.concatenate(self._parts)[:, 2:].tolist()
        lows = [low if count else None for count, low, _ in rows]
        highs = [high if count else None for count, _, high in rows]
        first = [self._ends[0][1]] * self.thinned
        return list(zip((x for x, _ in self.points), first + lows, first + highs, strict=True))


def _merged(rows: np.ndarray, width: int) -> np.ndarray:
    """Neighbouring rows [n, 5] as one, `width` at a time."""
    if width == 1:
        return rows
    begins = np.arange(0, len(rows), width)
    ends = np.append(begins[1:], len(rows)) - 1
    sums = np.add.reduceat(rows[:, 1:3], begins)
    extremes = (np.minimum.reduceat(rows[:, 3], begins), np.maximum.reduceat(rows[:, 4], begins))
    return np.column_stack([rows[ends, 0], sums, *extremes])


@dataclass(frozen=True)
class Metrics:
    """A run's log: `steps` lines that count, `trained` of them after a step of training, `lines` some of them."""

    steps: int
    trained: int
    lines: tuple[Mapping[str, Number], ...]
    series: Mapping[str, Series]


def read_metrics(log: Path, notes: list[str], exactly: Collection[str] = ()) -> Metrics:
    """Reads a log of metrics; `notes` gets the lines left out, `exactly` names series to keep whole.

    Raises:
        TokenPOError: no whole line with a step, or the file was cut while it was being read.
    """
    steps, offsets, names = array("d"), array("q"), dict[str, None]()

    def step_of(line: Any) -> float:
        if not isinstance(line, dict) or (step := number(line.get("step"))) is None:
            raise ValueError("not an object with a step")
        if not line.keys() <= names.keys():
            names.update(dict.fromkeys(line))
        return step

    for line in whole_lines(log, step_of, notes):
        steps.append(line.value)
        offsets.append(line.offset)
    if not steps:
        cause = notes[0] if notes else "it is empty"
        raise TokenPOError(
            f"{log} holds no whole line with a step ({cause.rstrip('.')}): "
            "train again if the run stopped before its first step, else restore the file"
        )
    by_step = np.argsort(steps, kind="stable")
    ascending = np.asarray(steps)[by_step]
    last = np.append(ascending[1:] != ascending[:-1], True)  # of the lines of one step
    if repeated := int((~last).sum()):
        notes.append(f"metrics.jsonl: {repeated} steps were logged twice (a resumed run); the later line counts.")
    notes += _missing_steps(ascending[last])
    return collect(_lines(log, np.asarray(offsets)[by_step][last]), ascending[last], names, exactly)


def collect(
    lines: Iterable[Mapping[str, Any]], steps: np.ndarray, names: Iterable[str], exactly: Collection[str] = ()
) -> Metrics:
    """Collects one line a step, ascending; `names` are all that a line may hold, in order."""
    names = dict.fromkeys(names)
    noted = [name for name in names if name.startswith(NOTE)]
    graded = "eval/reward" in names
    series = {name: Series(name in exactly) for name in (*names, *(REWARDS if graded else ()))}
    every = -(-len(steps) // SAMPLED)
    sampled = []
    lines = iter(lines)
    for start in range(0, len(steps), CHUNK):
        places = steps[start : start + CHUNK].tolist()
        chunk = list(islice(lines, CHUNK))
        if graded:
            chunk = [_with_reward(line) for line in chunk]
        if noted:
            # A note is written only where there is one: at the other steps that were judged it is 0.
            none = dict.fromkeys(noted, 0.0)
            chunk = [{**none, **line} if number(line.get("accuracy")) is not None else line for line in chunk]
        sampled += [_plain(x) for i, x in enumerate(chunk, start) if i % every == 0 or i == len(steps) - 1]
        for name in dict.fromkeys(chain.from_iterable(chunk)):
            if len(points := _points(places, chunk, name)):
                series[name].add(points)
    kept = {name: curve for name, curve in series.items() if curve._parts}
    return Metrics(len(steps), int((steps > 0).sum()), tuple(sampled), kept)


def with_rewards(lines: Sequence[Mapping[str, X]]) -> list[Mapping[str, X]]:
    """The lines of a run's metrics; if some have a mean reward, it stands in all that evaluate.

    >>> with_rewards([{"eval/accuracy": 0.0}, {"lr": 1.0}, {"eval/accuracy": 0.5, "eval/reward": 0.7}])[0]
    {'eval/accuracy': 0.0, 'eval/reward': 0.0}
    """
    if not any("eval/reward" in line for line in lines):
        return list(lines)
    return [_with_reward(line) for line in lines]


def number(value: Any) -> Number:
    """A finite float, or None. Beyond 1e±100 no axis is drawable: such numbers count as not finite, or as zero."""
    if not isinstance(value, (bool, int, float)):
        return None
    try:
        x = float(value)
    except OverflowError:
        return None
    if not abs(x) < 1e100:
        return None
    return x if abs(x) > 1e-100 else 0.0


def _with_reward(line: Mapping[str, X]) -> Mapping[str, X]:
    if "eval/reward" in line:
        return line
    return {**line, **{name: line[same] for name, same in REWARDS.items() if same in line}}


def _plain(line: Mapping[str, Any]) -> dict[str, Number]:
    return {name: number(value) for name, value in line.items() if type(value) in _LOGGED_TYPES}


def _points(steps: Sequence[float], lines: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    """Step and value [n, 2] of the lines that have this metric."""
    try:
        values = list(map(itemgetter(name), lines))
    except KeyError:
        steps = [step for step, line in zip(steps, lines, strict=True) if name in line]
        values = [line[name] for line in lines if name in line]
    if not set(map(type, values)) <= _LOGGED_TYPES:
        steps = [step for step, value in zip(steps, values, strict=True) if type(value) in _LOGGED_TYPES]
        values = [value for value in values if type(value) in _LOGGED_TYPES]
    try:
        column = np.array(values, dtype=float)
    except OverflowError:  # an integer with hundreds of digits
        column = np.array(list(map(number, values)), dtype=float)
    column[~(abs(column) < 1e100)] = np.nan
    column[abs(column) <= 1e-100] = 0.0
    return np.column_stack([steps, column])


def _lines(log: Path, offsets: np.ndarray) -> Iterator[dict[str, Any]]:
    """The lines that begin at these bytes, in this order."""
    place = 0
    with opened(log) as file:
        for offset in chain.from_iterable(part.tolist() for part in np.array_split(offsets, len(offsets) // CHUNK + 1)):
            if offset != place:
                file.seek(offset)
            line = file.readline()
            place = offset + len(line)
            try:
                yield parsed(line)
            except (ValueError, RecursionError) as error:
                raise TokenPOError(f"{log} was changed while it was being read: give the command again") from error


def _missing_steps(steps: np.ndarray) -> list[str]:
    """A note when the steps do not follow each other at the most common distance."""
    gaps = np.diff(steps)
    if not len(gaps):
        return []
    distances, first, counts = np.unique(gaps, return_index=True, return_counts=True)
    usual = distances[counts == counts.max()][first[counts == counts.max()].argmin()]
    wide = np.flatnonzero(gaps > usual)
    if not len(wide):
        return []
    holes = [f"{steps[i]:g}–{steps[i + 1]:g}" for i in wide[:5]]
    more = f" and {len(wide) - 5} more" if len(wide) > 5 else ""
    return [f"metrics.jsonl: steps are missing between {', '.join(holes)}{more}; the curves break there."]
