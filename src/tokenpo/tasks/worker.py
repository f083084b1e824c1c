"""One verifier process: a JSON line in, a JSON line out.

Started by its path, so that it imports nothing of this package (and so no torch). The pool at the other end holds the
clock; the alarm here is for the case that the pool is gone and nobody is left to stop a verifier that hangs.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any


def main(source: str, function: str, limit: float, memory: int, *setup: str) -> None:
    """Serves `function` of the Python file `source` until stdin ends.

    Args:
        source: path of a Python file.
        function: its function to call with the items of each job.
        limit: seconds a job may take, as the pool counts them.
        memory: bytes of address space; 0 is no limit.
        setup: texts; with any, `function` is called with them and returns what serves the jobs.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a verifier prints must not pass for an answer

    def send(message: dict[str, Any]) -> None:
        answers.write(json.dumps(message).encode() + b"\n")
        answers.flush()

    try:
        if memory:
            _limit_memory(memory)
        verify = _load(source, function)
        if setup:
            verify = verify(*setup)
    except Exception as error:
        send({"failed": f"{type(error).__name__}: {error}"})
        return
    send({"ready": True})
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_REAL, 2 * limit + 1)
        try:
            send({"value": verify(*json.loads(line))})
        except Exception as error:
            send({"error": type(error).__name__})
        signal.setitimer(signal.ITIMER_REAL, 0)


def _load(source: str, function: str) -> Callable[..., Any]:
    spec = importlib.util.spec_from_file_location("verifier", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, function)


def _limit_memory(size: int) -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
