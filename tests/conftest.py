"""Puts `tests/` on the path, so that every test can import `oracle_support`; one thread keeps runs repeatable."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)
