"""From runs to a comparison: the numbers of every run, the pairs, the curves, the notes, and compare.json."""

import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ...base.errors import TokenPOError, UnknownName, choose, nearest
from ...base.jsonl import finite
from ...records.metrics import LOGGED, NOTE
from ...records.run import Run, read_run
from ...train.recipe.config import Config
from .plan import Failure, Plan, State, Subject, pairs, state
from .verdict import ALPHA, Pair, judge, too_few

DEFAULT = ("accuracy", "area", "entropy", "seconds")
STEP = "step_seconds"  # verl's time of a whole step, without validation; its other timers leave parts out
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
    chosen = [PREDEFINED[name] if name in PREDEFINED else _reduced(name) for name in dict.fromkeys(names)]
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
        try:
            least[name] = float(number)
        except ValueError:
            least[name] = 0.0
        if not 0 < least[name] < math.inf:
            raise TokenPOError(f"--margin {piece}: {number!r} is not a least difference: give a number above 0")
    return least


def _reduced(name: str) -> Measure:
    """`last:`, `mean:`, `sd:` or `cv:` of any logged metric."""
    how, colon, metric = name.partition(":")
    if not colon:
        names = [*PREDEFINED, *(f"{reduction}:METRIC" for reduction in _REDUCTIONS)]
        raise UnknownName(f"--metrics: no measure is called {name!r}: {nearest(name, names)}")
    words, reduce = choose(f"--metrics {name}: the reduction", how, _REDUCTIONS)
    if metric not in LOGGED and not re.fullmatch(f"{NOTE}.+", metric):
        raise UnknownName(f"--metrics {name}: no run logs {metric!r}: {nearest(metric, LOGGED)}")

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


CURVES = ("eval/accuracy", "accuracy", "entropy")
ByLabel = Mapping[str, Mapping[int, Run]]  # label of a method -> seed -> run
Band = Sequence[tuple[float, float, float, float]]  # (step, mean, least, most) over the runs of one method


@dataclass(frozen=True)
class Result:
    """One measure: `values[label][seed]`, and its pairs, which are one family of comparisons."""

    measure: Measure
    values: Mapping[str, Mapping[int, float | None]]
    pairs: tuple[Pair, ...]

    def numbers(self, label: str) -> list[float]:
        """The defined values of a method, by seed."""
        return [value for _, value in sorted(self.values[label].items()) if value is not None]

    def mean(self, label: str) -> float | None:
        numbers = self.numbers(label)
        return statistics.fmean(numbers) if numbers else None


@dataclass(frozen=True)
class Comparison:
    """Everything that is shown. `bands[metric][label]` are the curves, `finished[label]` the finished seeds."""

    subject: Subject
    baseline: str
    results: tuple[Result, ...]
    bands: Mapping[str, Mapping[str, Band]]
    finished: Mapping[str, tuple[int, ...]]
    failures: tuple[Failure, ...]
    versions: Mapping[str, Any]
    notes: tuple[str, ...]


def finished(plan: Plan) -> ByLabel:
    runs: dict[str, dict[int, Run]] = {label: {} for label in plan.subject.labels}
    for planned in plan.runs:
        if state(planned) is State.DONE:
            runs[planned.label][planned.seed] = read_run(planned.directory)
    return runs


def gather(
    subject: Subject, runs: ByLabel, measures: Sequence[Measure], baseline: str, failures: Sequence[Failure],
    margins: Mapping[str, float], *, where_logged: bool = False,
) -> Comparison:  # fmt: skip
    """Judges the pairs of runs; `where_logged` leaves out measures that no run has, as engines log different ones."""
    compared, every = pairs(subject.labels, baseline), [run for by_seed in runs.values() for run in by_seed.values()]
    if where_logged:
        measures = [x for x in measures if any(x.of(run) is not None for run in every)] or measures
    if not any(len(runs[a].keys() & runs[b].keys()) > 1 for a, b in compared):
        has = [f"seeds of {label}: {', '.join(map(str, sorted(of))) or 'none'}" for label, of in runs.items()]
        failed = f"; {failed_in_words(failures)}" if failures else f" ({'; '.join(has)}): train the missing ones"
        raise TokenPOError(f"{subject.place}: two methods need finished runs of the same seeds, two or more{failed}")
    results = []
    for measure in measures:
        values = {label: {seed: measure.of(run) for seed, run in by_seed.items()} for label, by_seed in runs.items()}
        known = {label: {s: x for s, x in of.items() if x is not None} for label, of in values.items()}
        if not any(known.values()):
            where = f"no run in {subject.place} logged a number for {measure.needs}"
            raise TokenPOError(f"--metrics {measure.name}: {where}")
        judged = judge(known, compared, margin=margins.get(measure.name))
        results.append(Result(measure, values, tuple(judged)))
    return Comparison(
        subject, baseline, tuple(results),
        bands={name: {label: _band(runs[label].values(), name) for label in subject.labels} for name in CURVES},
        finished={label: tuple(sorted(by_seed)) for label, by_seed in runs.items()}, failures=tuple(failures),
        versions=every[0].versions, notes=(*subject.notes, *_notes(runs, every, results)),
    )  # fmt: skip


def failed_in_words(failures: Sequence[Failure]) -> str:
    """The failed runs and their reasons, each reason once."""
    reasons: dict[str, list[Failure]] = defaultdict(list)
    for failure in failures:
        reasons[failure.line].append(failure)
    parts = []
    for line, failed in reasons.items():
        more = f" and {len(failed) - 3} more" if len(failed) > 3 else ""
        parts.append(f"{', '.join(failure.run.name for failure in failed[:3])}{more}: {line} (log: {failed[0].log})")
    return f"{len(failures)} run{'s' if len(failures) > 1 else ''} failed: {'; '.join(parts)}"


def _band(runs: Iterable[Run], name: str) -> Band:
    """The band over the steps at which every run has a number."""
    series = [{step: value for step, value in run.series(name) if value is not None} for run in runs]
    steps = sorted(set.intersection(*map(set, series))) if series else []
    columns = [(step, [values[step] for values in series]) for step in steps]
    return [(step, statistics.fmean(column), min(column), max(column)) for step, column in columns]


def _notes(runs: ByLabel, every: Sequence[Run], results: Sequence[Result]) -> Iterator[str]:
    for label, by_seed in runs.items():
        for seed, run in by_seed.items():
            yield from (f"{label} seed {seed}: {note}" for note in run.notes)
    for seed in sorted({seed for by_seed in runs.values() for seed in by_seed}):
        starts = {dict(by_seed[seed].series("eval/accuracy")).get(0) for by_seed in runs.values() if seed in by_seed}
        if len(starts) > 1:
            yield (
                f"Seed {seed}: the evaluations before training differ, so its runs did not begin alike (other software "
                "or machine, or a device that is not exact?)."
            )
    records = [run.versions for run in every]
    names = sorted({name for versions in records for name in versions})
    if odd := [name for name in names if len({json.dumps(versions.get(name)) for versions in records}) > 1]:
        yield f"The runs were not made with the same software on one machine: they differ in {', '.join(odd)}."
    common = [(pair, runs[pair.a].keys() & runs[pair.b].keys()) for pair in results[0].pairs]
    if apart := [f"{pair.a} and {pair.b}" for pair, seeds in common if len(seeds) < 2]:
        yield f"Not compared, as fewer than two finished runs of each have the same seeds: {', '.join(apart)}."
    for result in results:
        missing = [
            f"{none} of {len(by_seed)} runs of {label}"
            for label, by_seed in result.values.items()
            if (none := sum(value is None for value in by_seed.values()))
        ]
        if missing:
            yield f"{result.measure.title}: {', '.join(missing)} have no number and are left out."
    few = {len(pair.seeds): pair.family for result in results for pair in result.pairs if pair.adjusted is not None}
    yield from (too_few(n, m) for n, m in few.items() if m * 2.0 ** (1 - n) > ALPHA)


def to_json(comparison: Comparison) -> str:
    """compare.json: all data of table and page, and every difference; an infinite option is written as text."""
    subject = comparison.subject
    methods = [
        {
            "label": label,
            "method": method.get("name"),
            "options": {key: value for key, value in method.items() if key != "name"},
            "objective": subject.objectives[label],
            "finished": comparison.finished[label],
        }
        for label, method in subject.methods.items()
    ]
    metrics = []
    for result in comparison.results:
        by_label = {label: sorted(by_seed.items()) for label, by_seed in result.values.items()}
        metrics.append(
            {
                **{key: getattr(result.measure, key) for key in ("name", "title", "unit", "meaning")},
                "values": {label: {str(seed): x for seed, x in values} for label, values in by_label.items()},
                "means": {label: result.mean(label) for label in result.values},
                "pairs": [pair.as_json() for pair in result.pairs],
            }
        )
    failed = [{"run": failure.run.name, "error": failure.line} for failure in comparison.failures]
    record = {
        "format": 2, "title": subject.title, "config": subject.config, "methods": methods, "seeds": subject.seeds,
        "baseline": comparison.baseline, "alpha": ALPHA, "metrics": metrics, "failed": failed,
        "notes": comparison.notes, "versions": comparison.versions,
    }  # fmt: skip
    return json.dumps(finite(record, str), indent=1, ensure_ascii=False) + "\n"
