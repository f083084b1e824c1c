"""Puts `tests/` and `benchmarks/` on the path, for what tests share; one thread keeps runs repeatable."""

import signal
import sys
from pathlib import Path

import torch

# Each is run by its own test, in a process of its own.
collect_ignore = ["ops/interpreted_softmax.py", "device/cases.py"]

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
torch.set_num_threads(1)
# A shell starts what it runs in the background with Ctrl-C ignored, which tests of interrupts would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
