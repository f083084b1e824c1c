"""Says at the end of a run that verl's adapter was not tested: a skip is easily overlooked."""

from __future__ import annotations

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if "adapters/verl" in report.nodeid]
    for reason in sorted({str(report.longrepr[-1]).removeprefix("Skipped: ") for report in skipped}):
        terminalreporter.write_line(f"not tested with verl: {reason}", yellow=True)
