"""A real vLLM, on a CPU: `make test-vllm` has it, and there a package that is missing is a failure.

Elsewhere nothing here is collected, and the end of the run says so.
"""

import importlib.metadata
import os
from pathlib import Path
from typing import Any

import pytest

from foreign_support.required import REQUIRED
from random_models import random_llama, random_qwen
from vllm_support import cpu

HERE = cpu.installed()
collect_ignore_glob = [] if HERE or os.environ.get(REQUIRED) == "1" else ["*"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if collect_ignore_glob:
        terminalreporter.write_line("no real vLLM sampled: that is make test-vllm", yellow=True)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where what vLLM needs beside its package is written.

    Raises:
        PackageNotFoundError: vLLM's CPU build is not installed.
    """
    importlib.metadata.version(cpu.DISTRIBUTION)
    return tmp_path_factory.mktemp("site")


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("models")
    return {"qwen": random_qwen(directory / "qwen", head_dim=32), "llama": random_llama(directory / "llama")}
