"""A pool of processes that can be killed: a function that hangs or crashes costs one answer, not the run."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import TokenPOError, present

_PROGRAM = Path(__file__).with_name("worker.py")
_START_LIMIT = 60.0  # seconds for a worker's imports
_USERS_START_LIMIT = 600.0
_SAME_ORDER = {"PYTHONHASHSEED": "0"}
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Outcome:
    """The `value` of a job, or None and a note: "timeout", "crash" or "error: <exception>"."""

    value: Any
    note: str = ""
    seconds: float = field(default=0.0, compare=False)


class Pool:
    """Calls one function of one Python file in worker processes, each job under a wall-clock limit.

    A worker that exceeds the limit or dies is killed and replaced; its job is not tried again. Arguments and results
    must be JSON. The hash seed is fixed, so sets have one order.

    Args:
        source: a Python file that imports no more than it needs.
        function: the function in it.
        workers: processes at most, 1 or more.
        limit: seconds per job.
        memory: bytes of address space per worker; 0: without limit.
        users: for the user's code: `function` is called once with these texts and returns the function for the jobs.
            Its output is shown, and it may take minutes to start.
    """

    def __init__(
        self,
        source: Path,
        function: str,
        workers: int = 2,
        limit: float = 5.0,
        memory: int = 2**32,
        users: Sequence[str] = (),
    ) -> None:
        if not (0 < limit <= threading.TIMEOUT_MAX and workers > 0):
            raise TokenPOError(f"{workers} workers with {limit} seconds for an answer: give 1 or more, and a time")
        self.function, self.limit, self.size = function, limit, workers
        self._arguments = [str(source), function, str(memory), *users]
        self._users = bool(users)
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _end, self._workers)

    def map(self, jobs: Sequence[Sequence[Any]]) -> list[Outcome]:
        """One outcome per job (the function's arguments); a TokenPOError if the pool is closed or no worker starts."""
        if not self._finalizer.alive:
            raise TokenPOError(f"the pool of workers for {self.function!r} is closed")
        texts = [json.dumps(job) for job in jobs]
        with self._lock, ThreadPoolExecutor(self.size) as threads:  # each waits for one worker
            try:
                return list(threads.map(self._outcome, texts))
            except BaseException:  # also Ctrl-C
                self._idle.clear()
                for worker in self._workers:
                    worker.kill()  # its thread reads the end of its answers, and ends too
                raise

    def close(self) -> None:
        """Kills the workers; the pool can't be used again."""
        self._finalizer()

    def _outcome(self, job: str) -> Outcome:
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = self._started()
        began = time.monotonic()
        answer, note = worker.ask(job, self.limit)
        if note:
            self._workers.remove(worker)
            worker.end()
        else:
            self._idle.append(worker)
            note = f"error: {answer['error']}" if "error" in answer else ""
        return Outcome(answer.get("value"), note, time.monotonic() - began)

    def _started(self) -> "_Worker":
        worker = _Worker(self._arguments, self._users)
        self._workers.append(worker)
        answer, note = worker.ask("[]", _USERS_START_LIMIT if self._users else _START_LIMIT)
        if why := note or answer.get("failed"):
            raise TokenPOError(f"a worker process for {self.function!r} could not start: {why:.500}")
        return worker


class _Worker:
    """One process, used by one thread at a time."""

    def __init__(self, arguments: Sequence[str], users: bool) -> None:
        # In its own session Ctrl-C in the terminal doesn't reach the worker, and a kill reaches its children too.
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(_PROGRAM), str(os.getpid()), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if users else subprocess.DEVNULL,
            start_new_session=True,
            env=os.environ | _SAME_ORDER | ({} if users else _ONE_THREAD),
        )
        self._jobs, self._answers = present(self.process.stdin, "stdin"), present(self.process.stdout, "stdout")
        self._late = False

    def ask(self, job: str, limit: float) -> tuple[dict[str, Any], str]:
        """(the answer, ""), or ({}, "timeout" or "crash")."""
        timer = threading.Timer(limit, self._too_late)
        timer.start()
        try:
            with contextlib.suppress(BrokenPipeError):  # it has died
                self._jobs.write(job.encode() + b"\n")
                self._jobs.flush()
            line = self._answers.readline()
        finally:
            timer.cancel()
            timer.join()
        if self._late or not line.endswith(b"\n"):
            return {}, "timeout" if self._late else "crash"
        return json.loads(line), ""

    def _too_late(self) -> None:
        self._late = True
        self.kill()

    def kill(self) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        self.kill()
        self.process.communicate()


def _end(workers: list[_Worker]) -> None:
    while workers:
        workers.pop().end()
