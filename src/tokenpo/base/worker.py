"""One worker process: a JSON line in, a JSON line out.

Both pipes are moved away from the standard streams, so a function that prints reaches neither. Started by its path,
this file imports nothing of the package.
"""

import contextlib
import importlib.util
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


def main(parent: int, source: str, function: str, memory: int, *setup: str) -> None:
    """Serves `function` of `source` until stdin ends or the process `parent` does; the rest as in `Pool`."""
    threading.Thread(target=_end_with, args=[parent], daemon=True).start()
    jobs, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "w")
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # the function's output must not be taken for an answer

    def send(message: dict[str, Any]) -> None:
        try:
            print(json.dumps(message), file=answers, flush=True)
        except BrokenPipeError:  # the parent has ended
            os.killpg(os.getpid(), signal.SIGKILL)

    jobs.readline()
    try:
        work = _loaded(source, function, memory)
        if setup:
            work = work(*setup)
    except Exception as error:
        send({"failed": f"{type(error).__name__}: {error}"})
        return
    send({"ready": True})
    for line in jobs:
        try:
            send({"value": work(*json.loads(line))})
        except Exception as error:
            send({"error": type(error).__name__[:80]})


def _loaded(source: str, function: str, memory: int) -> Any:
    if memory:
        import resource

        with contextlib.suppress(ValueError):  # the system allows less
            resource.setrlimit(resource.RLIMIT_AS, (memory, resource.getrlimit(resource.RLIMIT_AS)[1]))
    # Loaded as a package, so that the file may import its neighbours: from .spelling import spelled.
    folder = [str(Path(source).parent)]
    spec = importlib.util.spec_from_file_location("worked", source, submodule_search_locations=folder)
    module = sys.modules["worked"] = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return getattr(module, function)


def _end_with(parent: int) -> None:
    """Kills this process and its children within a second of the parent's end, even by a SIGKILL."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.killpg(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), *sys.argv[5:])
