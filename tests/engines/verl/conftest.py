"""Prints at the end of a run that verl's adapter was not tested: a skip is easily overlooked."""

from __future__ import annotations

from typing import Any

from foreign_support import say_skips


def pytest_terminal_summary(terminalreporter: Any) -> None:
    say_skips(terminalreporter, "tests/engines/verl", "not tested with verl")
