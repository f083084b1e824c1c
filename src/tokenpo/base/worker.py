"""One worker process: a JSON line in, a JSON line out.

Each incoming line begins with a random token, and so does the answer to it. Both pipes are moved away from the standard
streams, so a function that prints reaches neither. Started by its path, this file imports nothing of the package. The
pool holds the other end of a silent pipe: when that end closes, this process and its children end at once.
"""

import contextlib
import fcntl
import importlib.util
import json
import os
import select
import signal
import sys
import threading
from pathlib import Path
from typing import Any

TOKEN = 32  # bytes


def main(pool: int, source: str, function: str, memory: int, *setup: str) -> None:
    """Serves `function` of `source` until stdin ends; `pool` is the pipe's descriptor, the rest as in `Pool`."""
    end_with(pool)
    jobs, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # the function's output must not be taken for an answer

    def send(message: dict[str, Any]) -> None:
        answers.write(line[:TOKEN] + json.dumps(message).encode() + b"\n")
        answers.flush()

    line = jobs.readline()
    try:
        if memory:
            import resource

            _, hard = resource.getrlimit(resource.RLIMIT_AS)
            most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
            resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        # Loaded as a package, so that the file may import its neighbours: from .spelling import spelled.
        folder = [str(Path(source).parent)]
        spec = importlib.util.spec_from_file_location("worked", source, submodule_search_locations=folder)
        if spec is None or spec.loader is None:
            raise ImportError(f"{source} is no Python file")
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        work = getattr(module, function)
        if setup:
            work = work(*setup)
    except Exception as error:
        send({"failed": f"{type(error).__name__}: {error}"})
        return
    send({"ready": True})
    for line in jobs:
        try:
            send({"value": work(*json.loads(line[TOKEN:]))})
        except Exception as error:
            send({"error": type(error).__name__[:80]})


def end_with(pipe: int) -> None:
    """Kills this process and its group when the other end of a pipe is closed, even by a SIGKILL."""
    try:
        # On Linux the kernel does it. PR_SET_PDEATHSIG would follow the thread that started us, not the process.
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpid())
        fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_ASYNC)
    except (AttributeError, OSError):
        threading.Thread(target=lambda: (os.read(pipe, 1), _end()), daemon=True).start()
    ended = select.poll()
    ended.register(pipe, 0)
    if ended.poll(0):
        _end()


def _end() -> None:
    with contextlib.suppress(OSError):
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), *sys.argv[5:])
