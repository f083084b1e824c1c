"""Puts `tests/` and `benchmarks/` on the path, for what tests share; one thread keeps runs repeatable."""

import signal
import sys
from pathlib import Path

import torch

# Each belongs to a process of its own, which a test starts.
collect_ignore = ["ops/interpreted_softmax.py", "device/cases.py", "device/stand_in.py", "trl_support/device_run.py"]

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
torch.set_num_threads(1)
# A shell starts what it runs in the background with Ctrl-C ignored, which tests of interrupts would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
