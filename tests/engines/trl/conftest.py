"""Runs TRL once for one process and once for two, and reads what came of it; says at the end what was skipped."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from foreign_support import need, say_skips
from random_models import random_qwen

MISSING = "trl is not installed: the adapter to it was not tested"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    say_skips(terminalreporter, "tests/engines/trl", "not tested")


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_qwen(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def trl_here() -> None:
    """Skips, or fails where the lane was set up to have TRL; it is imported in processes of its own."""
    if find_spec("trl") is None:
        need("trl", MISSING)
