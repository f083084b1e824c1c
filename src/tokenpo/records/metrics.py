"""The metrics of a run: their names, those that every engine computes alike, and a reader that thins long curves."""

import math
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..base.errors import TokenPOError
from ..base.jsonl import whole_lines
from ..core.ops import masked
from ..core.statistics import LAGS
from ..core.types import Credit, Rollouts

Number = float | None
Points = tuple[np.ndarray, np.ndarray]  # indices into the steps, ascending; values, NaN if not a finite number
# Names of the metrics that engines log.
_LOGGED = """
    reward accuracy eval/accuracy eval/low eval/high entropy entropy_q10 entropy_q50 entropy_q90 length length_max
    eval/length ratio_mean ratio_min ratio_max clip_fraction clip_low_fraction clip_high_fraction kl grad_norm
    zero_advantage_groups effective_tokens discarded_groups truncated seconds_rollout seconds_update seconds_other
    loss lr temperature_mean eval/avg eval/avg_low eval/avg_high eval/k groups seconds_evaluation reward_std
    length_min equal_reward_groups skipped_updates eval/reward eval/reward_low eval/reward_high eval/avg_reward
    eval/avg_reward_low eval/avg_reward_high continued_tokens kl_reached kl_rate kl_left_out value_loss
    explained_variance teacher_kl kept_tokens
"""
BY_LAG = ("share", "ratio_mean", "clip_fraction")
LOGGED = frozenset(_LOGGED.split()) | {f"lag_{least}_{what}" for least in LAGS for what in BY_LAG}
NOTE = "note/"  # prefix of metrics that count a verifier's notes
# Held-out mean reward -> the accuracy that it equals if every reward is 1 for a right and 0 for a wrong response. In
# that case the metrics leave the reward out.
REWARDS: Mapping[str, str] = {
    "eval/reward": "eval/accuracy",
    "eval/reward_low": "eval/low",
    "eval/reward_high": "eval/high",
    "eval/avg_reward": "eval/avg",
    "eval/avg_reward_low": "eval/avg_low",
    "eval/avg_reward_high": "eval/avg_high",
}
EXACT = 10_000  # a series with at most this many points is kept whole
BUCKETS = 298  # most points of a thinned series, plus its first point: fewer than a chart is wide
_LOGGED_TYPES = {float, int, bool, type(None)}
X = TypeVar("X")


class Series:
    """The points of one metric, ascending in steps [n]; if not `exact`, more than `EXACT` are thinned to means.

    Attributes:
        points: (step, value), None without a number; if thinned: the first, means of buckets, the last.
        extremes: (step, lowest, highest) at the steps of `points`; both equal the value if not thinned.
    """

    def __init__(self, step: np.ndarray, value: np.ndarray, exact: bool = False) -> None:
        self.thinned = len(step) > EXACT and not exact
        self.total = float(np.nansum(value))
        width = 1 << (-(-len(step) // BUCKETS) - 1).bit_length() if self.thinned else 1
        begins = np.arange(0, len(step), width)
        steps, low, high = step[np.append(begins[1:], len(step)) - 1], *(f.reduceat(value, begins) for f in _ENDS)
        with np.errstate(invalid="ignore"):  # a bucket without a number
            mean = np.add.reduceat(np.nan_to_num(value), begins) / np.add.reduceat(~np.isnan(value), begins, dtype=int)
        if self.thinned:
            steps, low, high = (np.append(x[:1], y) for x, y in ((step, steps), (value, low), (value, high)))
            mean = np.concatenate([value[:1], mean[:-1], value[-1:]])
        low, high, mean = ([None if y != y else y for y in x.tolist()] for x in (low, high, mean))
        self.points: list[tuple[float, Number]] = [*zip(steps.tolist(), mean, strict=True)]
        self.extremes: list[tuple[float, Number, Number]] = [*zip(steps.tolist(), low, high, strict=True)]


_ENDS = np.fmin, np.fmax


@dataclass(frozen=True)
class Metrics:
    """A run's log: the number of steps after step 0, and the `series`."""

    trained: int
    series: Mapping[str, Series]


def read_metrics(log: Path, notes: list[str], exactly: Collection[str] = ()) -> Metrics:
    """Reads a log of metrics; skipped lines are named in `notes`, series in `exactly` are kept whole.

    If a resumed run logged a step twice, the later line counts.
    """
    columns: dict[str, tuple[array[int], array[float]]] = {"step": (array("q"), array("d"))}

    def stepped(line: Any) -> dict[str, Any]:
        if not isinstance(line, dict) or number(line.get("step")) is None:
            raise ValueError("not an object with a step")
        return line

    for row, line in enumerate(whole_lines(log, stepped, notes)):
        for name, value in line.value.items():
            if name not in columns:
                columns[name] = array("q"), array("d")
            if type(value) in _LOGGED_TYPES:
                columns[name][0].append(row)
                columns[name][1].append(math.nan if (x := number(value)) is None else x)
    logged = np.asarray(columns["step"][1])
    if not len(logged):
        cause = notes[0] if notes else "it is empty"
        raise TokenPOError(f"{log} holds no whole line with a step ({cause.rstrip('.')}): restore it, or train again")
    by_step = np.argsort(logged, kind="stable")
    ascending = logged[by_step]
    last = np.append(ascending[1:] != ascending[:-1], True)  # the last line of each step
    if repeated := int((~last).sum()):
        notes.append(f"metrics.jsonl: {repeated} steps were logged twice (a resumed run); the later line counts.")
    steps = ascending[last]
    place = np.full(len(logged), -1)
    place[by_step[last]] = np.arange(len(steps))
    by_name: dict[str, Points] = {}
    for name in [*columns]:
        rows, value = map(np.asarray, columns.pop(name))  # one at a time, to save memory
        if len((points := _placed(place[rows], value))[0]):
            by_name[name] = points
    _complete(by_name)
    series = {name: Series(steps[at], value, name in exactly) for name, (at, value) in by_name.items()}
    return Metrics(int((steps > 0).sum()), series)


def _placed(place: np.ndarray, value: np.ndarray) -> Points:
    """The points sorted by place, without those at place -1."""
    order = np.argsort(place, kind="stable")[(place < 0).sum() :]
    return place[order], value[order]


def _complete(by_name: dict[str, Points]) -> None:
    """Adds values that are implied and not written: mean rewards equal to accuracies, and counts 0 of notes."""
    nothing = np.empty(0, dtype=int), np.empty(0)
    graded = [(name, by_name[same]) for name, same in REWARDS.items() if same in by_name and "eval/reward" in by_name]
    judged, accuracy = by_name.get("accuracy", nothing)
    judged = judged[~np.isnan(accuracy)]
    noted = [(name, (judged, np.zeros(len(judged)))) for name in by_name if name.startswith(NOTE)]
    for name, (at, value) in (*graded, *noted):
        mine, known = by_name.get(name, nothing)
        new = ~np.isin(at, mine)
        by_name[name] = _placed(np.append(mine, at[new]), np.append(known, value[new]))


def with_rewards(lines: Sequence[Mapping[str, X]]) -> list[Mapping[str, X]]:
    """The lines of a run's metrics; if one has a held-out mean reward, all lines with an evaluation get it.

    >>> with_rewards([{"eval/accuracy": 0.0}, {"lr": 1.0}, {"eval/accuracy": 0.5, "eval/reward": 0.7}])[0]
    {'eval/accuracy': 0.0, 'eval/reward': 0.0}
    """
    if not any("eval/reward" in line for line in lines):
        return list(lines)
    implied = [{name: line[same] for name, same in REWARDS.items() if same in line} for line in lines]
    return [line if "eval/reward" in line else {**line, **more} for line, more in zip(lines, implied, strict=True)]


def number(value: Any) -> Number:
    """A finite float, or None. No axis can show numbers beyond 1e±100: they count as not finite, or as zero."""
    if not isinstance(value, (bool, int, float)):
        return None
    try:
        x = float(value)
    except OverflowError:
        return None
    if not abs(x) < 1e100:
        return None
    return x if abs(x) > 1e-100 else 0.0


def entropy_metrics(entropy: Tensor) -> dict[str, float]:
    """Mean and quantiles of the entropy over tokens [M], nats."""
    quantiles = {f"entropy_q{q}": float(masked.quantile(entropy, q / 100)) for q in (10, 50, 90)}
    return {"entropy": float(entropy.mean()), **quantiles}


def credit_metrics(rollouts: Rollouts, credit: Credit) -> dict[str, float]:
    """Statistics of the groups that are trained on."""
    live = ((credit.advantage != 0) & rollouts.mask).any(1)
    groups = int(rollouts.group.max()) + 1
    alive = torch.zeros(groups, dtype=torch.bool, device=live.device).index_put((rollouts.group[live],), live[live])
    return {"groups": groups, "zero_advantage_groups": 1 - float(alive.float().mean())}
