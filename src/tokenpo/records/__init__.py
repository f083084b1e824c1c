"""The one format of runs and rollouts, written by every engine and read by `tokenpo report`, `compare` and `explain`.

`log` writes a run directory and `run` reads it; `rollouts` are whole rollout batches, `response` one line of them.
docs/report.md, docs/metrics.md and docs/rollouts.md describe the files.
"""

from .log import RunLog
from .response import Response, responses
from .rollouts import Recording, drop_after, read, step_file, write_lines
from .trace import Tracer

__all__ = ["Recording", "Response", "RunLog", "Tracer", "drop_after", "read", "responses", "step_file", "write_lines"]
