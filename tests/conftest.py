"""Puts `tests/` on the path, so that every test can import `oracle_support`; one thread keeps runs repeatable."""

import signal
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)
# A shell starts what it runs in the background with Ctrl-C ignored, which tests of interrupts would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
