"""Says at the end of a run which foreign code was not compared."""

from __future__ import annotations

from typing import Any

from foreign_support import say_skips


def pytest_terminal_summary(terminalreporter: Any) -> None:
    say_skips(terminalreporter, "tests/foreign", "not compared with foreign code")
