"""Recorded rollouts: one rollout batch in a file that any engine can write and `tokenpo explain` reads.

`response` is one line of it, `files` the whole file, `recording` the batch as an objective takes it.
The format is described in docs/rollouts.md.
"""

from __future__ import annotations

from .files import drop_after, read, step_file, write_lines
from .recording import Recording
from .response import Response, responses

__all__ = ["Recording", "Response", "drop_after", "read", "responses", "step_file", "write_lines"]
