"""The report: one HTML file that loads nothing, runs nothing and can be mailed."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from .chart import draw
from .curves import charts
from .head import head
from .record import Run, Trace, read_run, read_trace
from .shell import HERE, policy, stylesheet, template, write
from .text import number, visible
from .tokens import Browser, browse

MOST_ROWS, MOST_COLUMNS = 120, 80


def write_report(run_dir: Path | str, out: Path | str | None = None) -> Path:
    """Draws a run directory as one self-contained HTML file, `run_dir`/report.html unless `out` names another.

    The page holds no script and forbids any by its Content-Security-Policy. What could not be read (a line that was
    cut off, a missing trace) is named on the page. The same run gives the same bytes.

    Raises:
        TokenPOError: no run directory, no metrics, or a place that cannot be written.
    """
    run = read_run(run_dir)
    target = Path(out) if out is not None else run.path / "report.html"
    if target.is_dir():
        target = target / "report.html"
    return write(render(run, read_trace(run.path)), target)


def render(run: Run, trace: Trace) -> str:
    """The page as text."""
    browser = browse(trace)
    drawn, undrawn = charts(run)
    notes = [*run.notes, *trace.notes, *(browser.notes if browser else ())]
    if undrawn:
        more = f" and {len(undrawn) - 40:,} more" if len(undrawn) > 40 else ""
        shown = ", ".join(visible(name, limit=60) for name in undrawn[:40])
        notes.append(f"Metrics that no chart shows: {shown}{more}.")
    style = _style(browser)
    return template(HERE, "page.html").render(
        policy=policy(style),
        style=Markup(style),
        head=head(run),
        moving=[(chart, draw(chart)) for chart in drawn if not chart.constant],
        constant=[(chart, draw(chart)) for chart in drawn if chart.constant],
        browser=browser,
        table=_table(run),
        notes=notes,
    )


def _style(browser: Browser | None) -> str:
    """The style sheet and the rules that depend on this run: colours per quantity, steps, columns of the readout."""
    rules = [stylesheet()]
    if browser is not None:
        for i, scale in enumerate(browser.scales):
            rules += scale.rules(f"q{i}")
            rules.append(f":root:has(#q{i}:checked) .legend-{i}{{display:block}}")
        rules += [f":root:not(:has(#s{i}:checked)) .step-{i}{{display:none}}" for i in range(len(browser.steps))]
        columns = len(browser.scales) + 1
        rules += [
            f".tokens tr:hover td:nth-of-type({i + 1}),.readout b:nth-of-type({i + 1}){{left:{100 * i / columns:.2f}%}}"
            for i in range(columns)
        ]
    return "\n".join(rules)


def _table(run: Run) -> tuple[list[str], list[list[str]], str]:
    """(metric names, rows of formatted numbers, how much of it that is if not all) for the table under the curves."""
    names = ["step", *run.names][:MOST_COLUMNS]
    every = -(-len(run.metrics) // MOST_ROWS)
    kept = [row for i, row in enumerate(run.metrics) if i % every == 0 or i == len(run.metrics) - 1]
    shown = [visible(name, limit=60) for name in names]
    parts = []
    if len(kept) < len(run.metrics):
        parts.append(f"{len(kept)} of {len(run.metrics):,} steps")
    if len(names) <= len(run.names):
        parts.append(f"{len(names) - 1} of {len(run.names):,} metrics")
    return shown, [[number(row.get(name)) for name in names] for row in kept], " and ".join(parts)
