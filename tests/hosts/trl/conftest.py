"""Tests of the adapter to TRL: without TRL none is collected, and the end of a run says so."""

from pathlib import Path
from typing import Any

import pytest

from foreign_support import absent
from random_models import random_qwen

collect_ignore = absent(__file__, "trl")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if collect_ignore:
        terminalreporter.write_line("not tested: trl is not installed", yellow=True)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_qwen(tmp_path_factory.mktemp("model"))
