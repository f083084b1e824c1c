"""Says at the end of a run which foreign code was not compared: a skip is easily overlooked."""

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = [report for report in terminalreporter.stats.get("skipped", []) if "tests/foreign" in report.nodeid]
    for reason in sorted({str(report.longrepr[-1]).removeprefix("Skipped: ") for report in skipped}):
        terminalreporter.write_line(f"not compared with foreign code: {reason}", yellow=True)
