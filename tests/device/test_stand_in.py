"""Everything that should run on a GPU, on a stand-in for one (`stand_in`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch.utils import backend_registration


@pytest.mark.skipif(
    not hasattr(backend_registration, "_setup_privateuseone_for_python_backend"),
    reason="this torch takes no backend that is written in Python: nothing ran on a stand-in for a GPU",
)
@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_everything_runs_beside_the_processor(which):
    cases = Path(__file__).with_name("cases.py")
    command = [sys.executable, "-m", "pytest", "-v", "-x", "-p", "no:cacheprovider", "-m", which, str(cases)]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
