"""The report: one HTML file that loads nothing and can be mailed; its first view needs no script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from ...base.text import differences, number
from ...runs.read import Run, Trace, read_run, read_trace
from ..page.chart import draw
from ..page.page import policy, stylesheet, template, write
from ..page.text import visible
from .browser import Browser, browse, in_common
from .curves import charts
from .embed import embed
from .head import Head, head

HERE = Path(__file__).parent
MOST_ROWS, MOST_COLUMNS = 120, 80
WIDE, NARROW = 8, 3  # numbers in one row of the readout


def write_report(run_dir: Path | str, out: Path | str | None = None, beside: Path | str | None = None) -> Path:
    """Draws a run directory as one self-contained HTML file.

    Its one script is admitted by its hash in a Content-Security-Policy that forbids everything else. What could not be
    read (a line that was cut off, a missing trace) is named on the page. The same run gives the same bytes.

    Args:
        run_dir: the run.
        out: the file or its directory; None is report.html in the run directory, or beside-NAME.html with another run.
        beside: another run directory, whose tokens are shown beside those of the first on the same scales.

    Raises:
        TokenPOError: no run directory, no metrics, or a place that cannot be written.
    """
    run = read_run(run_dir)
    other = None if beside is None else read_run(beside)
    name = "report.html" if other is None else f"beside-{other.label}.html"
    target = Path(out) if out is not None else run.path / name
    if target.is_dir():
        target = target / name
    return write(render([(r, read_trace(r.path)) for r in (run, other) if r is not None]), target)


def render(runs: Sequence[tuple[Run, Trace]]) -> str:
    """The page as text: head and curves are the first run's, the tokens those of all."""
    run = runs[0][0]
    heads = [head(run) for run, _ in runs]
    labels = _labels([run for run, _ in runs], heads)
    browser = browse(list(zip(labels, (trace for _, trace in runs), strict=True)))
    drawn, undrawn = charts(run)
    notes = [*_named(labels, [[*run.notes, *trace.notes] for run, trace in runs]), *(browser.notes if browser else ())]
    if undrawn:
        more = f" and {len(undrawn) - 40:,} more" if len(undrawn) > 40 else ""
        listed = ", ".join(visible(name, limit=60) for name in undrawn[:40])
        notes.append(f"Metrics that no chart shows: {listed}{more}.")
    style = _style(browser)
    script = (HERE / "report.js").read_text(encoding="utf-8") if browser else ""
    facts = heads[0].facts
    if len(runs) > 1:
        facts = (*facts, ("beside, tokens only", labels[1]), *_unlike(runs[0][0], runs[1][0]))
    return template(HERE, "page.html").render(
        policy=policy(style, script),
        style=Markup(style),
        script=Markup(script),
        title=heads[0].title if len(runs) == 1 else f"{heads[0].title}, beside {labels[1]}",
        head=heads[0],
        facts=facts,
        moving=[(chart, draw(chart)) for chart in drawn if not chart.constant],
        constant=[(chart, draw(chart)) for chart in drawn if chart.constant],
        browser=browser,
        data=embed(browser) if browser else "",
        common=in_common(browser) if browser and len(browser.sources) > 1 else None,
        table=_table(run),
        notes=notes,
    )


def _labels(runs: Sequence[Run], heads: Sequence[Head]) -> list[str]:
    """What the page calls the runs: their methods, with the directory where these are the same."""
    methods = [dict(heading.facts).get("method", "a run") for heading in heads]
    if len(set(methods)) == len(methods):
        return methods
    return [f"{m} ({visible(run.label, limit=60)})" for m, run in zip(methods, runs, strict=True)]


def _named(labels: Sequence[str], notes: Sequence[Sequence[str]]) -> list[str]:
    """The notes of every run; with several, each says whose it is."""
    if len(labels) == 1:
        return list(notes[0])
    return [f"{label}: {note}" for label, mine in zip(labels, notes, strict=True) for note in mine]


def _unlike(first: Run, second: Run) -> list[tuple[str, str]]:
    """The settings but the method in which two runs differ: with another task or seed no prompt is the same."""
    plain = [
        {key: x for key, x in run.config.items() if key not in ("method", "output", "name")} for run in (first, second)
    ]
    changes = differences(*plain)
    shown = "; ".join(visible(line, limit=80) for line in changes[:6]) + (" ..." if len(changes) > 6 else "")
    return [("settings that differ", shown)] if changes else []


def _style(browser: Browser | None) -> str:
    """The style sheet and the rules that depend on this run: colours per quantity, places of the readout."""
    rules = [stylesheet()]
    if browser is not None:
        for i, scale in enumerate(browser.scales):
            rules += scale.rules(f"q{i}")
            rules.append(f":root:has(#q{i}:checked) .legend-{i}{{display:block}}")
        columns = len(browser.scales) + 1
        rules += _readout(columns, WIDE)
        rules += ["@media (max-width:50rem){", *_readout(columns, NARROW), "}"]
    return "\n".join(rules)


def _readout(columns: int, per_row: int) -> list[str]:
    """Where each number of the token under the pointer, and its name above it, stand at the foot of the window."""
    rows = -(-columns // per_row)
    rules = [f".readout{{height:{2.7 * rows + 0.3:.1f}rem}}.tokens td,.readout b{{width:{100 / per_row:.2f}%}}"]
    for i in range(columns):
        left, bottom = 100 * (i % per_row) / per_row, 2.7 * (rows - 1 - i // per_row) + 0.4
        both = f".tokens td:nth-of-type({i + 1}),.readout b:nth-of-type({i + 1})"
        rules.append(f"{both}{{left:{left:.2f}%;bottom:{bottom:.1f}rem}}")
    return rules


def _table(run: Run) -> tuple[list[str], list[list[str]], str]:
    """(metric names, rows of formatted numbers, how much of it that is if not all) for the table under the curves."""
    names = ["step", *run.names][:MOST_COLUMNS]
    every = -(-len(run.metrics) // MOST_ROWS)
    steps = [step for step, _ in run.series("step")]
    kept = [step for i, step in enumerate(steps) if i % every == 0 or i == len(steps) - 1]
    columns = [dict(run.series(name)) for name in names]
    shown = [visible(name, limit=60) for name in names]
    parts = []
    if len(kept) < len(steps):
        parts.append(f"{len(kept)} of {len(steps):,} steps")
    if len(names) <= len(run.names):
        parts.append(f"{len(names) - 1} of {len(run.names):,} metrics")
    return shown, [[number(column.get(step)) for column in columns] for step in kept], " and ".join(parts)
