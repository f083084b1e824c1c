"""From runs to a comparison: numbers of every run, pairs, curves, notes; compare.json, tables, and compare.html.

The page is one file that loads nothing, runs nothing and can be mailed.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from markupsafe import Markup

from ...base.errors import TokenPOError
from ...base.jsonl import finite
from ...base.text import flat, number
from ...page import frame
from ...page.chart import Axis, Chart, Line, Spot, axis_labels, draw, strip, ticks
from ...page.table import Cell, Row, Table, print_parts
from ...page.text import paragraph, visible
from ...runs.read import Run, read_run
from .measures import SECONDS, Measure, Value
from .plan import Plan, Subject, pairs, read_existing
from .runs import Failure, State, state
from .verdict import ALPHA, Pair, judge, too_few

CURVES = ("eval/accuracy", "accuracy", "entropy")
ByLabel = Mapping[str, Mapping[int, Run]]  # of a method by its label, of a run by its seed
Band = Sequence[tuple[float, float, float, float]]  # (step, mean, least, most) over the runs of one method


@dataclass(frozen=True)
class Result:
    """One measure: `values[label][seed]`, and its pairs, which are one family of comparisons."""

    measure: Measure
    values: Mapping[str, Mapping[int, Value]]
    pairs: tuple[Pair, ...]

    def numbers(self, label: str) -> list[float]:
        """The defined values of a method, by seed."""
        return [value.number for _, value in sorted(self.values[label].items()) if value.number is not None]

    def mean(self, label: str) -> float | None:
        numbers = self.numbers(label)
        return statistics.fmean(numbers) if numbers else None

    def censored(self, label: str) -> int:
        """Runs whose number is only a lower bound."""
        return sum(value.censored for value in self.values[label].values())


@dataclass(frozen=True)
class Comparison:
    """All that is shown. `bands[metric][label]` are the curves, `finished[label]` the seeds that there are."""

    subject: Subject
    baseline: str
    results: tuple[Result, ...]
    bands: Mapping[str, Mapping[str, Band]]
    finished: Mapping[str, tuple[int, ...]]
    failures: tuple[Failure, ...]
    versions: Mapping[str, Any]
    notes: tuple[str, ...]


def gather(
    plan: Plan, measures: Sequence[Measure], baseline: str, failures: Sequence[Failure] = (),
    margins: Mapping[str, float] | None = None, *, where_logged: bool = False,
) -> Comparison:  # fmt: skip
    """Reads every whole run of the plan and judges the pairs.

    Args:
        margins: by the name of a measure, the least difference that matters.
        where_logged: leave out a measure that no run has, as another engine logs other metrics.
    """
    runs: dict[str, dict[int, Run]] = {label: {} for label in plan.subject.labels}
    for planned in plan.runs:
        if state(planned) is State.DONE:
            runs[planned.label][planned.seed] = read_run(planned.directory, _metrics(measures))
    return _compared(plan.subject, runs, measures, baseline, failures, margins or {}, where_logged)


def gather_existing(
    directories: Sequence[Path], measures: Sequence[Measure], baseline: str | None, margins: Mapping[str, float],
    *, where_logged: bool = False,
) -> Comparison:  # fmt: skip
    """`gather` for runs that exist; the default baseline is the method of the first run."""
    subject, runs = read_existing(directories, _metrics(measures))
    return _compared(subject, runs, measures, baseline or subject.labels[0], (), margins, where_logged)


def _metrics(measures: Sequence[Measure]) -> set[str]:
    return {*CURVES, *SECONDS, *(measure.needs for measure in measures)}


def _compared(
    subject: Subject, runs: ByLabel, measures: Sequence[Measure], baseline: str, failures: Sequence[Failure],
    margins: Mapping[str, float], where_logged: bool,
) -> Comparison:  # fmt: skip
    compared, every = pairs(subject.labels, baseline), [run for by_seed in runs.values() for run in by_seed.values()]
    if where_logged:
        measures = [x for x in measures if any(x.of(run).number is not None for run in every)] or measures
    if not any(len(runs[a].keys() & runs[b].keys()) > 1 for a, b in compared):
        has = [f"{label} has {', '.join(map(str, sorted(of))) or 'none'}" for label, of in runs.items()]
        failed = f"; {failed_in_words(failures)}" if failures else f" ({'; '.join(has)})"
        raise TokenPOError(f"{subject.place}: no pair to compare has two finished runs with the same seeds{failed}")
    results = []
    for measure in measures:
        values = {label: {seed: measure.of(run) for seed, run in by_seed.items()} for label, by_seed in runs.items()}
        known = {label: {s: x.number for s, x in of.items() if x.number is not None} for label, of in values.items()}
        if not any(known.values()):
            where = f"no run in {subject.place} logged a number for {measure.needs}"
            raise TokenPOError(f"--metrics {measure.name}: {where}")
        late = {label: [seed for seed, x in of.items() if x.censored] for label, of in values.items()}
        judged = judge(known, compared, late=late, margin=margins.get(measure.name))
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
    """Over the steps that every run has a number for."""
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
    for result in results:
        yield from _incomplete(result)
    few = {len(pair.seeds): pair.family for result in results for pair in result.pairs if pair.adjusted is not None}
    yield from (too_few(n, m) for n, m in few.items() if m * 2.0 ** (1 - n) > ALPHA)


def _incomplete(result: Result) -> Iterator[str]:
    """Notes on runs without a number, and on those whose number is a bound."""
    missing, late = [], []
    for label, by_seed in result.values.items():
        if none := sum(value.number is None for value in by_seed.values()):
            missing.append(f"{none} of {len(by_seed)} runs of {label}")
        if bounds := result.censored(label):
            late.append(f"{bounds} of {len(by_seed)} runs of {label}")
    if missing:
        yield f"{result.measure.title}: {', '.join(missing)} have no number and are left out."
    if late:
        yield (
            f"{result.measure.title}: {', '.join(late)} never got there. A pair with one of them has an order and no "
            "difference, a pair of two neither. Means with ≥ are lower bounds: the earliest that they could have."
        )


def to_json(comparison: Comparison) -> str:
    """compare.json: everything that table and page are made of, and every difference; an option of inf is text."""
    subject = comparison.subject
    methods = [
        {
            "label": label, "method": method, "options": options, "objective": subject.objectives[label],
            "finished": comparison.finished[label],
        }
        for label, (method, options) in subject.methods.items()
    ]  # fmt: skip
    metrics = []
    for result in comparison.results:
        by_label = {label: sorted(by_seed.items()) for label, by_seed in result.values.items()}
        metrics.append({
            **{key: getattr(result.measure, key) for key in ("name", "title", "unit", "meaning")},
            "values": {label: {str(seed): x.number for seed, x in values} for label, values in by_label.items()},
            "censored": {label: [seed for seed, x in values if x.censored] for label, values in by_label.items()},
            "means": {label: result.mean(label) for label in result.values},
            "pairs": [pair.as_json() for pair in result.pairs],
        })  # fmt: skip
    failed = [{"run": failure.run.name, "error": failure.line} for failure in comparison.failures]
    record = {
        "format": 2, "title": subject.title, "config": subject.config, "methods": methods, "seeds": subject.seeds,
        "baseline": comparison.baseline, "alpha": ALPHA, "metrics": metrics, "failed": failed,
        "notes": comparison.notes, "versions": comparison.versions,
    }  # fmt: skip
    return json.dumps(finite(record, str), indent=1, ensure_ascii=False) + "\n"


ROUNDING = 1e-12
NUMBERS = ("difference", "95 % interval", "p", "p, Holm")


def show(comparison: Comparison, stream: TextIO) -> None:
    """Prints the means, a table of differences for each measure, then what to know of them."""
    tables = [means(comparison)]
    for result in comparison.results:
        rows = [Row(pair_name(comparison, pair), [*numbers(pair), Cell(pair.short)]) for pair in result.pairs]
        title = f"{result.measure.title}: {result.measure.meaning}"
        tables.append(Table([heading(comparison), *NUMBERS, "verdict"], rows, title, words=True))
    lines = [f"{result.measure.title}: {summary(result)}" for result in comparison.results]
    notes = [f"note: {visible(note, limit=1000)}" for note in comparison.notes]
    print_parts([*tables, *lines, *notes], stream)


def means(comparison: Comparison) -> Table:
    """One row for each method."""
    head, subject = ["method", "runs"], comparison.subject
    for measure in (result.measure for result in comparison.results):
        unit = f", {measure.unit}" if measure.unit not in ("", "steps", "fraction") else ""
        head.append(visible(measure.title + unit, limit=80))
    rows = [
        Row(
            name(label),
            [Cell(str(len(comparison.finished[label]))), *(Cell(mean(result, label)) for result in comparison.results)],
        )
        for label in subject.labels
    ]
    return Table(head, rows, f"{visible(subject.title, limit=200)}: means over seeds")


def numbers(pair: Pair) -> list[Cell]:
    """The cells under `NUMBERS`."""
    of = f" ({len(pair.differences.known)} of {len(pair.seeds)})" if pair.differences.bounded else ""
    return [*map(Cell, (signed(pair.mean) + of, interval(pair), p_value(pair.p), p_value(pair.adjusted)))]


def name(label: str) -> str:
    """A label as it is shown."""
    return visible(label, limit=80)


def signed(x: float | None) -> str:
    """Three significant digits with a sign; what rounding leaves of differences that cancel is 0.

    >>> signed(0.0214), signed(-3.0), signed(0.0), signed(1.1e-17), signed(None)
    ('+0.0214', '−3', '0', '0', '–')
    """
    if x is None or not math.isfinite(x):
        return number(x)
    if abs(x) < ROUNDING:
        return "0"
    return ("+" if x > 0 else "−") + number(abs(x))


def interval(pair: Pair) -> str:
    """The interval of the mean difference."""
    return "" if pair.low is None else f"{signed(pair.low)} to {signed(pair.high)}"


def p_value(p: float | None) -> str:
    """Two significant digits.

    >>> p_value(0.001953125), p_value(1.0)
    ('0.002', '1')
    """
    return "–" if p is None else f"{p:.2g}"


def mean(result: Result, label: str) -> str:
    """The mean over seeds; "≥" where runs that never got there make it a lower bound."""
    late, text = result.censored(label), number(result.mean(label))
    return f"≥ {text} ({late} never)" if late else text


def summary(result: Result) -> str:
    """All verdicts of one measure in a line; those that decide nothing are counted."""
    phrases = []
    for pair in result.pairs:
        if pair.decided:
            phrases.append(name(f"{pair.a} and {pair.b} {pair.verdict}" if pair.above is None else pair.verdict))
    for verdict, count in Counter(pair.verdict for pair in result.pairs if not pair.decided).items():
        every = f"all {count} pairs" if count == len(result.pairs) else str(count)
        phrases.append(verdict if len(result.pairs) == 1 else f"{every} {verdict}")
    return "; ".join(phrases)


def pair_name(comparison: Comparison, pair: Pair) -> str:
    """The row of a pair: with one baseline for all, it goes without saying."""
    return f"{name(pair.a)} − {name(pair.b)}" if comparison.baseline == "all" else name(pair.a)


def heading(comparison: Comparison) -> str:
    """The heading of that column."""
    return "pair" if comparison.baseline == "all" else f"method − {name(comparison.baseline)}"


HERE = Path(__file__).parent
STRIP = 360  # width of its drawing


def render(comparison: Comparison) -> str:
    """The page as text. The same runs give the same bytes."""
    subject = comparison.subject
    return frame.render(
        HERE / "compare.html", visible(subject.title, limit=200), facts=_facts(comparison),
        summaries=[(visible(r.measure.title, limit=80), summary(r)) for r in comparison.results],
        notes=[visible(note, limit=1000) for note in comparison.notes],
        failures=[visible(f"{f.run.name}: {f.line}", limit=500) for f in comparison.failures],
        sections=[_section(comparison, result) for result in comparison.results],
        margins=any(pair.margin for result in comparison.results for pair in result.pairs), means=means(comparison),
        curves=list(_curves(comparison)),
        named=[(name(label), paragraph(text, limit=5000)) for label, text in subject.objectives.items()],
        origin=subject.origin, origins="\n".join(visible(line, limit=2000) for line in subject.origins),
        config=paragraph(json.dumps(subject.config, indent=2, ensure_ascii=False), limit=20_000),
        software=[(visible(str(k), limit=40), visible(str(v), limit=120)) for k, v in comparison.versions.items()],
    )  # fmt: skip


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    """(name, value) of the settings that all runs share."""
    subject, settings = comparison.subject, flat(comparison.subject.config)

    def count(path: str) -> int:
        return value if isinstance(value := settings.get(path), int) else 0

    steps, prompts, group = count("train.steps"), count("rollout.prompts"), count("rollout.group_size")
    problems, seeds = count("evaluate.problems"), subject.seeds
    in_a_row = 0 < seeds[-1] - seeds[0] == len(seeds) - 1
    facts = [
        ("recipe", settings.get("recipe")),
        ("model", settings.get("model.path")),
        ("task", settings.get("task.name")),
        ("steps", steps and f"{steps:,}" + (f" of {prompts} prompts x {group} responses" if prompts and group else "")),
        ("updates per step", count("train.epochs") * count("train.minibatches")),
        ("seeds", f"{seeds[0]} to {seeds[-1]}" if in_a_row else ", ".join(map(str, seeds))),
        ("runs", f"{sum(map(len, comparison.finished.values()))} of {subject.planned}"),
        ("held-out problems", problems and f"{problems:,}"),
        ("baseline", "every pair" if comparison.baseline == "all" else comparison.baseline),
    ]
    return [(name, visible(str(text), limit=120)) for name, text in facts if text]


def _section(comparison: Comparison, result: Result) -> dict[str, Any]:
    """One measure: its differences, each with its strip and verdict, and the number of every seed."""
    spots, all_seeds = [_spot(pair) for pair in result.pairs], comparison.subject.seeds
    ends = [x for spot in spots for x in (spot.low, spot.high, *(x for x, _ in spot.points)) if x is not None]
    axis = Axis(ticks(min([0.0, *ends]), max([0.0, *ends]), 4), STRIP, zero=True)
    rows = []
    for pair, spot in zip(result.pairs, spots, strict=True):
        label = f"difference {signed(pair.mean)}, 95 % interval {interval(pair) or 'none'}"
        picture = Cell("", picture=strip([spot], axis, label, band=pair.margin))
        reason = pair.reason
        for note in comparison.notes:  # what stands at the top of the page for all pairs is not repeated
            reason = reason.removeprefix(note).lstrip()
        verdict = Cell(name(pair.verdict), reason, kind="decided" if pair.decided else "")
        rows.append(Row(pair_name(comparison, pair), [picture, *numbers(pair), verdict]))
    seeds = []
    for label in comparison.subject.labels:
        known, values = result.numbers(label), [result.values[label].get(seed) for seed in all_seeds]
        texts = ["no run" if x is None else "≥ " * x.censored + number(x.number) for x in values]
        texts.append(f"{number(min(known))} to {number(max(known))}" if known else "")
        seeds.append(Row(name(label), [*map(Cell, texts)]))
    head, foot = [heading(comparison), "", *NUMBERS, "verdict"], [Cell("", picture=axis_labels(axis))]
    return {
        "title": visible(result.measure.title, limit=80),
        "meaning": visible(result.measure.meaning, limit=300),
        "differences": Table(head, rows, words=True, foot=foot),
        "seeds": Table(["method", *(f"seed {seed}" for seed in all_seeds), "range"], seeds),
    }


def _spot(pair: Pair) -> Spot:
    by_seed = zip(pair.seeds, pair.differences.values, strict=True)
    points = [(d, f"seed {seed}: {signed(d)}") for seed, d in by_seed if d is not None]
    return Spot(pair.mean, pair.low, pair.high, "c0" if pair.decided else "open", points)


def _curves(comparison: Comparison) -> Iterator[tuple[str, list[tuple[Chart, Markup]]]]:
    """(title, charts): every method beside the baseline, mean over seeds, shaded from the lowest to the highest."""
    labels = comparison.subject.labels
    base = labels[0] if comparison.baseline == "all" else comparison.baseline
    for metric, title, unit, high in (
        ("eval/accuracy", "Held-out accuracy", "greedy", 1.0),
        ("accuracy", "Training accuracy", "sampled", 1.0),
        ("entropy", "Entropy", "nats per token", None),
    ):
        bands, dots, charts = comparison.bands[metric], metric.startswith("eval/"), []
        for label in labels:
            if label != base and bands[label]:
                lines = [  # the baseline's is dashed
                    Line(
                        name(of), [(step, mean) for step, mean, *_ in bands[of]], k, dashed=k == 1, dots=dots,
                        span=[(step, low, high) for step, _, low, high in bands[of]], shaded=True,
                    )
                    for k, of in enumerate((label, base))
                ]  # fmt: skip
                chart = Chart(name(label), unit, "", lines, fraction=high is not None, high=high, always=True)
                charts.append((chart, draw(chart)))
        if charts:
            yield title, charts
