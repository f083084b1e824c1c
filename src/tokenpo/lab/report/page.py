"""The report: one HTML file that loads nothing and can be mailed; its first view needs no script."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...base.text import differences, duration, flat, number
from ...methods import METHODS, paper
from ...records.metrics import EXACT
from ...records.run import Run, Trace, read_run, read_trace
from ..page import frame
from ..page.chart import Axis, Spot, axis_labels, draw, strip
from ..page.table import Cell, Row, Table
from ..page.text import paragraph, percent, visible
from .browser import browse, embed, in_common
from .curves import charts

HERE = Path(__file__).parent
MOST_COLUMNS = 80
WIDE, NARROW = 8, 3  # numbers per row of the readout


def write_report(run_dir: Path | str, out: Path | str | None = None, beside: Path | str | None = None) -> Path:
    """Draws a run directory as one self-contained HTML file.

    A Content-Security-Policy allows its only script by hash and forbids everything else. Parts that could not be read
    (a cut line, a missing trace) are named on the page. Equal runs give equal bytes.

    Args:
        run_dir: the run.
        out: the file or its directory; None is report.html in the run directory, or beside-NAME.html with another run.
        beside: another run directory, whose tokens are shown next to those of the first, on the same scales.

    Raises:
        TokenPOError: no run directory, no metrics, or `out` cannot be written.
    """
    run = read_run(run_dir)
    other = None if beside is None else read_run(beside)
    name = "report.html" if other is None else f"beside-{other.label}.html"
    target = Path(out) if out is not None else run.path / name
    if target.is_dir():
        target = target / name
    return frame.write(render([(r, read_trace(r.path)) for r in (run, other) if r is not None]), target)


def render(runs: Sequence[tuple[Run, Trace]]) -> str:
    """The page as text: head and curves of the first run, tokens of all."""
    run, names = runs[0][0], _names([run for run, _ in runs])
    task, facts = _setting(run, "task.name") or "an unnamed task", list(_facts(run))
    title = f"{_setting(run, 'method.name') or 'A run'} on {task}"
    if len(runs) > 1:
        title = f"{title}, beside {names[1]}"
        facts += [("beside, tokens only", names[1]), ("settings that differ", _changes(run, runs[1][0]))]
    browser = browse([(name, trace) for name, (_, trace) in zip(names, runs, strict=True)])
    drawn, undrawn = charts(run)
    outcomes, held_out = _outcomes(run)
    axis = Axis((0, 0.25, 0.5, 0.75, 1), 400, format=percent)
    accuracies = "; ".join(f"{when}: {percent(spot.mean)} {_interval(spot)}" for when, spot in outcomes)
    unread = [  # with several runs, each note names its run
        f"{name}: {note}" if len(runs) > 1 else note
        for name, (each, trace) in zip(names, runs, strict=True)
        for note in (*each.notes, *trace.notes, *_untraced(each, trace))
    ]
    # The places of the readout's numbers, which need more rows in a narrow window.
    rules = [rule for i, scale in enumerate(browser.scales) for rule in scale.rules(i)] if browser else []
    if browser:
        columns = len(browser.scales) + 1
        rules += [*_readout(columns, WIDE), "@media (max-width:50rem){", *_readout(columns, NARROW), "}"]
    return frame.render(
        HERE / "report.html", title, rules=rules,
        script=(HERE / "report.js").read_text(encoding="utf-8") if browser else "",
        facts=[(name, text) for name, text in facts if text],
        outcomes=[(when, percent(spot.mean), _interval(spot)) for when, spot in outcomes], held_out=held_out,
        picture=strip([spot for _, spot in outcomes], axis, f"Accuracy, {accuracies}") + axis_labels(axis),
        notes=[*unread, *(browser.notes if browser else ()), *_undrawn(run, undrawn)],
        objective=paragraph(run.objective.strip("\n"), limit=20_000),
        moving=[(chart, draw(chart)) for chart in drawn if not chart.constant],
        constant=[(chart, draw(chart)) for chart in drawn if chart.constant], table=_table(run), browser=browser,
        data=embed(browser) if browser else "",
        common=in_common(browser) if browser and len(browser.runs) > 1 else None,
        software=[(_short(k), _short(v)) for k, v in list(run.versions.items())[:40]],
        config=paragraph(json.dumps(run.config, indent=2, ensure_ascii=False), limit=20_000),
    )  # fmt: skip


def _names(runs: Sequence[Run]) -> list[str]:
    """Names of the runs on the page: their methods, with the directory if two methods are equal."""
    methods = [_setting(run, "method.name") or "a run" for run in runs]
    if len(set(methods)) == len(methods):
        return methods
    return [f"{m} ({visible(run.label, limit=60)})" for m, run in zip(methods, runs, strict=True)]


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    """(name, value) for the head of the page; "" if unknown."""
    method, steps = _setting(run, "method.name"), run.metrics.trained
    planned = _setting(run, "train.steps")
    seconds = [run.total(name) for name in run.names if name.startswith("seconds_")]
    yield "method", method
    yield "model", _setting(run, "model.path")
    yield "task", _setting(run, "task.name")
    yield "seed", _setting(run, "seed")
    yield "steps", f"{steps:,}" if planned in ("", str(steps)) else f"{steps:,} of {planned}"
    yield "time", duration(sum(seconds)) if seconds else ""
    for label, name in (("entropy, nats", "entropy"), ("length, tokens", "length")):
        values = [y for _, y in run.series(name) if y is not None]
        yield label, f"{number(values[0])} → {number(values[-1])}" if values else ""
    if method in METHODS:
        source = paper(method)
        yield "paper", f"{source.title}, {source.reference} ({source.provenance})"


def _setting(run: Run, path: str) -> str:
    """A setting of config.json as text; "" if there is none."""
    return _short(flat(run.config).get(path))


def _short(value: Any) -> str:
    return "" if value is None else visible(str(value), limit=120)


def _changes(first: Run, second: Run) -> str:
    """The settings in which two runs differ, without the method: with another task or seed no prompt is the same."""
    plain = [
        {key: x for key, x in run.config.items() if key not in ("method", "output", "name")} for run in (first, second)
    ]
    changes = differences(*plain)
    return "; ".join(visible(line, limit=80) for line in changes[:6]) + (" ..." if len(changes) > 6 else "")


def _untraced(run: Run, trace: Trace) -> Iterator[str]:
    """A note on the steps that were due for a trace but had no group with an advantage."""
    every = flat(run.config).get("output.trace_every")
    traced = {step for step, _ in trace.index}
    dead = [int(step) for step, share in run.series("zero_advantage_groups") if share == 1.0 and step not in traced]
    due = [f"{step:,}" for step in dead if every and (step == 1 or step % every == 0)] if isinstance(every, int) else []
    if due:
        more = f" and {len(due) - 8} more" if len(due) > 8 else ""
        listed = f"step{'s' if len(due) > 1 else ''} {', '.join(due[:8])}{more}"
        yield f"No tokens were traced at {listed}: no group there had an advantage, so nothing was learnt."


def _undrawn(run: Run, names: Sequence[str]) -> Iterator[str]:
    if any(map(run.thinned, run.names)):
        yield (
            f"Curves of more than {EXACT:,} points: they show means of neighbouring steps, the shaded bands their "
            "lowest and highest values."
        )
    if names:
        more = f" and {len(names) - 40:,} more" if len(names) > 40 else ""
        yield f"Metrics that no chart shows: {', '.join(visible(name, limit=60) for name in names[:40])}{more}."


def _outcomes(run: Run) -> tuple[list[tuple[str, Spot]], bool]:
    """(step, accuracy) first and last, and whether it is held-out: greedy, else sampled, else of the training."""
    for name, below, above in (
        ("eval/accuracy", "eval/low", "eval/high"),
        ("eval/avg", "eval/avg_low", "eval/avg_high"),
        ("accuracy", "", ""),
    ):
        if points := [(x, y) for x, y in run.series(name) if y is not None]:
            low, high = dict(run.series(below)), dict(run.series(above))
            spots = {x: Spot(y, low.get(x), high.get(x), "before") for x, y in (points[0], points[-1])}
            spots[points[-1][0]] = replace(spots[points[-1][0]], colour="c0")
            return [(f"step {number(x)}", spot) for x, spot in spots.items()], name != "accuracy"
    return [], False


def _interval(spot: Spot) -> str:
    return "" if spot.low is None or spot.high is None else f"{100 * spot.low:.3g}–{percent(spot.high)}"


def _table(run: Run) -> tuple[Table, str]:
    """The table of numbers under the curves, and a phrase on its size if it is not complete."""
    names = run.names[: MOST_COLUMNS - 1]
    lines, steps = run.metrics.lines, run.metrics.steps
    rows = [Row(number(line["step"]), [Cell(number(line.get(name))) for name in names]) for line in lines]
    parts = [f"{len(lines)} of {steps:,} steps"] if len(lines) < steps else []
    parts += [f"{len(names)} of {len(run.names):,} metrics"] if len(names) < len(run.names) else []
    return Table(["step", *(visible(name, limit=60) for name in names)], rows), " and ".join(parts)


def _readout(columns: int, per_row: int) -> Iterator[str]:
    """Style rules that place the numbers of the token under the pointer at the foot of the window."""
    rows = -(-columns // per_row)
    yield f".readout{{height:{2.7 * rows + 0.3:.1f}rem}}.tokens td,.readout b{{width:{100 / per_row:.2f}%}}"
    for i in range(columns):
        left, bottom = 100 * (i % per_row) / per_row, 2.7 * (rows - 1 - i // per_row) + 0.4
        both = f".tokens td:nth-of-type({i + 1}),.readout b:nth-of-type({i + 1})"
        yield f"{both}{{left:{left:.2f}%;bottom:{bottom:.1f}rem}}"
