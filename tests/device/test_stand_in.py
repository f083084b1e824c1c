"""Runs `cases.py` on a stand-in for a GPU, in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import backend_registration


@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch takes no backend that is written in Python: nothing ran on a stand-in for a GPU",
)
def test_everything_runs_beside_the_processor() -> None:
    cases = Path(__file__).with_name("cases.py")
    command = [sys.executable, "-m", "pytest", "-v", "-x", "-p", "no:cacheprovider", str(cases)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
