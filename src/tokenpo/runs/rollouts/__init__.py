"""Recorded rollouts: one rollout batch in a file that any engine can write and `tokenpo explain` reads.

`response` is one line of it, `lines` the JSON Lines file, `tensors` the same as safetensors, `recording` the whole
batch as the values that an objective takes. The format is described in docs/rollouts.md.
"""

from __future__ import annotations

from .lines import write_lines
from .read import read, step_file
from .recording import Recording
from .response import Response, responses
from .tensors import write_tensors

__all__ = ["Recording", "Response", "read", "responses", "step_file", "write_lines", "write_tensors"]
