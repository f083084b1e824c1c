"""The numbers by which runs are compared, and how each is computed from a run's metrics."""

import math
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...base.errors import TokenPOError, UnknownName, nearest
from ...records.metrics import LOGGED, NOTE
from ...records.run import Run
from ...train.recipe.config import Config

DEFAULT = ("accuracy", "area", "entropy", "seconds")
STEP = "step_seconds"  # verl's time of a whole step, without validation; its other timers leave parts out
SECONDS = (STEP, *(name for name in sorted(LOGGED) if name.startswith("seconds_")))
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Measure:
    """A number of a run; `of` computes it from the logged metric `needs`, None if undefined."""

    name: str
    title: str
    unit: str
    meaning: str
    needs: str
    of: Callable[[Run], float | None]


def measures(names: Sequence[str], config: Config | None) -> list[Measure]:
    if twice := next((name for name in names if list(names).count(name) > 1), None):
        raise TokenPOError(f"--metrics names {twice} twice: leave one out")
    chosen = [PREDEFINED[name] if name in PREDEFINED else _reduced(name) for name in names]
    for measure in chosen:
        if config and measure.needs.startswith(("eval/avg", "eval/k")) and not config.evaluate.samples:
            raise TokenPOError(f"--metrics {measure.name} needs samples, and evaluate.samples is 0: set it above 0")
    return chosen


def margins(text: str, chosen: Sequence[Measure]) -> dict[str, float]:
    """Measure -> smallest difference that matters, from text such as "accuracy=0.02,area=0.01"."""
    least, names = {}, [measure.name for measure in chosen]
    for piece in filter(None, text.split(",")):
        name, _, number = (part.strip() for part in piece.rpartition("="))
        if name not in names:
            raise UnknownName(f"--margin {piece}: {name!r} is not compared: {nearest(name, names)}")
        if name in least:
            raise TokenPOError(f"--margin names {name} twice: leave one out")
        try:
            least[name] = float(number)
        except ValueError:
            least[name] = 0.0
        if not 0 < least[name] < math.inf:
            raise TokenPOError(f"--margin {piece}: {number!r} is no least difference: give a number above 0")
    return least


def _reduced(name: str) -> Measure:
    """`last:`, `mean:`, `sd:` or `cv:` of any logged metric."""
    how, colon, metric = name.partition(":")
    if not colon:
        names = [*PREDEFINED, *(f"{reduction}:METRIC" for reduction in _REDUCTIONS)]
        raise UnknownName(f"--metrics: no measure is called {name!r}: {nearest(name, names)}")
    if how not in _REDUCTIONS:
        raise UnknownName(f"--metrics {name}: {how!r} is no way to reduce a metric: {nearest(how, _REDUCTIONS)}")
    if metric not in LOGGED and not re.fullmatch(f"{NOTE}.+", metric):
        raise UnknownName(f"--metrics {name}: no run logs {metric!r}: {nearest(metric, LOGGED)}")
    words, reduce = _REDUCTIONS[how]

    def of(run: Run) -> float | None:
        return _last(run, metric) if reduce is None else reduce(_trained(run, metric))

    return Measure(name, f"{metric}, {how}", "", f"The logged {metric}, {words}.", metric, of)


def _curve(run: Run, name: str) -> Points:
    return [(step, value) for step, value in run.series(name) if value is not None]


def _last(run: Run, name: str) -> float | None:
    """The value at the last step; undefined without one there, because an earlier value is another number."""
    return dict(run.series(name)).get(run.series("step")[-1][0])


def _trained(run: Run, name: str) -> list[float]:
    """The values at steps that trained: step 0 is the evaluation before them."""
    return [value for step, value in _curve(run, name) if step > 0]


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _sd(values: Sequence[float]) -> float | None:
    return statistics.stdev(values) if len(values) > 1 else None


def _cv(values: Sequence[float]) -> float | None:
    """Coefficient of variation, which compares spreads of metrics of different size; None for a mean of 0."""
    mean, sd = _mean(values), _sd(values)
    return sd / abs(mean) if mean and sd is not None else None


_REDUCTIONS: dict[str, tuple[str, Callable[[Sequence[float]], float | None] | None]] = {
    "last": ("in the last step", None),
    "mean": ("averaged over the steps", _mean),
    "sd": ("as its standard deviation over the steps", _sd),
    "cv": ("as its standard deviation over the steps divided by its mean", _cv),
}


def _area(curve: Points) -> float | None:
    """Mean height by trapezoids; None for fewer than two points."""
    if len(curve) < 2:
        return None
    area = sum((b - a) * (left + right) / 2 for (a, left), (b, right) in pairwise(curve))
    return area / (curve[-1][0] - curve[0][0])


def _seconds(run: Run) -> float | None:
    parts = [name for name in run.names if name.startswith("seconds_") and name != "seconds_evaluation"]
    names = [STEP] if STEP in run.names else parts
    return sum(value for name in names for _, value in _curve(run, name)) if names else None


PREDEFINED = {
    measure.name: measure
    for measure in (
        Measure("accuracy", "final accuracy", "fraction", "Held-out greedy accuracy after the last step.",
                "eval/accuracy", lambda run: _last(run, "eval/accuracy")),
        Measure("avg", "final avg@k", "fraction", "Held-out accuracy over k samples a problem after the last step.",
                "eval/avg", lambda run: _last(run, "eval/avg")),
        Measure("area", "area under the evaluation curve", "fraction",
                "Mean height of the held-out greedy accuracy over the steps, by trapezoids.",
                "eval/accuracy", lambda run: _area(_curve(run, "eval/accuracy"))),
        Measure("entropy", "final entropy", "nats", "Mean entropy of the tokens sampled in the last step.",
                "entropy", lambda run: _last(run, "entropy")),
        Measure("length", "final length", "tokens", "Mean length of the responses sampled in the last step.",
                "length", lambda run: _last(run, "length")),
        Measure("seconds", "training time", "s", "Wall time of all steps, evaluations left out; runs at the same time "
                "on one machine slow each other.", "seconds_update", _seconds),
    )
}  # fmt: skip
