"""A pool of processes that can be killed: a function that hangs or crashes costs one answer, not the run."""

import contextlib
import json
import os
import secrets
import select
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
_LONGEST = 1_000_000  # seconds, eleven days; the system's own waits allow little more
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Outcome:
    """The `value` of a job, or None and a note: "timeout", "crash", "not an answer" or "error: <exception>"."""

    value: Any
    note: str = ""
    seconds: float = field(default=0.0, compare=False)


def fill_standard_descriptors() -> None:
    """Opens the null device at each of the descriptors 0 to 2 that is closed, else a pipe or a file would get it."""
    while (place := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(place, True)
    os.close(place)


class Pool:
    """Calls one function of one Python file in worker processes, each job under a wall-clock limit.

    A worker that exceeds the limit, dies or writes something other than an answer is killed and replaced; its job is
    not tried again. Arguments and results must be JSON. The hash seed is fixed, so sets have one order.

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
        if not (0 < limit <= _LONGEST and workers > 0):
            raise TokenPOError(f"{workers} workers with {limit} seconds for an answer: give 1 or more, and a time")
        self.function, self.limit, self.size = function, limit, workers
        self._arguments = [str(source), function, str(memory), *users]
        self._users = bool(users)
        self._workers: list[_Worker] = []
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
                for worker in [*self._workers]:
                    worker.kill()  # its thread reads the end of its answers, and ends too
                raise

    def close(self) -> None:
        """Kills the workers; the pool can't be used again."""
        self._finalizer()

    def _outcome(self, job: str) -> Outcome:
        worker = next((worker for worker in [*self._workers] if worker.turn.acquire(blocking=False)), None)
        if worker is not None and worker.process.poll() is not None:  # it died while it was idle
            self._replace(worker)
            worker = None
        worker = worker or self._started()
        began = time.monotonic()
        answer, note = worker.ask(job, self.limit)
        if note:
            self._replace(worker)
        else:
            worker.turn.release()
        note = note or (f"error: {answer['error']}" if "error" in answer else "")
        return Outcome(answer.get("value"), note, time.monotonic() - began)

    def _started(self) -> "_Worker":
        worker = _Worker(self._arguments, self._users)
        self._workers.append(worker)
        answer, note = worker.ask("[]", _USERS_START_LIMIT if self._users else _START_LIMIT)
        if note:
            raise TokenPOError(f"a worker process did not start ({note}): {' '.join(self._arguments)}")
        if "failed" in answer:
            raise TokenPOError(f"a worker process could not start: {answer['failed']:.500}")
        return worker

    def _replace(self, worker: "_Worker") -> None:
        self._workers.remove(worker)
        worker.end()


class _Worker:
    """One process; the thread that holds `turn` waits for its answer."""

    def __init__(self, arguments: Sequence[str], users: bool) -> None:
        self.turn = threading.Lock()
        self.turn.acquire()
        fill_standard_descriptors()
        theirs, self._ours = os.pipe()  # our end closes when this process ends, however it ends; then the worker ends
        try:
            # In its own session Ctrl-C in the terminal doesn't reach the worker, and a kill reaches its children too.
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(_PROGRAM), str(theirs), *arguments],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if users else subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=[theirs],
                env=os.environ | _SAME_ORDER | ({} if users else _ONE_THREAD),
            )
        except BaseException:
            os.close(self._ours)
            raise
        finally:
            os.close(theirs)
        self._jobs, self._answers = present(self.process.stdin, "stdin"), present(self.process.stdout, "stdout")
        os.set_blocking(self._jobs.fileno(), False)  # the process may not read

    def ask(self, job: str, limit: float) -> tuple[dict[str, Any], str]:
        """(the answer, ""), or ({}, a note); the exchange takes `limit` seconds at most, whoever holds the pipes."""
        token, end = secrets.token_hex(16).encode(), time.monotonic() + limit
        left, said, chunk = memoryview(token + job.encode() + b"\n"), b"", b""
        with contextlib.suppress(BrokenPipeError):  # it has died
            while left:
                if not _ready(self._jobs.fileno(), select.POLLOUT, end):
                    return {}, "timeout"
                left = left[os.write(self._jobs.fileno(), left) :]
        while b"\n" not in chunk and token.startswith(said[: len(token)]):
            if not _ready(self._answers.fileno(), select.POLLIN, end):
                return {}, "timeout"
            chunk = os.read(self._answers.fileno(), 1 << 16)
            if not chunk:
                return {}, "crash"
            said += chunk
        if said.startswith(token):
            with contextlib.suppress(ValueError, RecursionError):  # a value that JSON can write but not read
                return dict(json.loads(said.removeprefix(token))), ""
        return {}, "not an answer"

    def kill(self) -> None:
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        self.kill()
        self.process.wait()
        self._jobs.close()
        self._answers.close()
        os.close(self._ours)


def _ready(descriptor: int, event: int, end: float) -> bool:
    """Waits until the descriptor is ready or its other end closed; False at the time `end`."""
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(max(0.0, end - time.monotonic()) * 1000))


def _end(workers: list[_Worker]) -> None:
    while workers:
        workers.pop().end()
