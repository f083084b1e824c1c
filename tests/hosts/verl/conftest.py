"""Tests of the adapter to verl: without verl few are collected, and the end of a run says so."""

from typing import Any

from foreign_support import absent

collect_ignore = absent(__file__, "verl")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if collect_ignore:
        terminalreporter.write_line("not tested: verl is not installed", yellow=True)
