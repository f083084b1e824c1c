"""A pool of processes that can be killed: a function that hangs or crashes costs one answer, not the run."""

import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import TokenPOError, present

_PROGRAM = Path(__file__).with_name("worker.py")
_START_LIMIT = 60.0  # seconds for a worker's imports
_USERS_START_LIMIT = 600.0
_SAME_ORDER = {"PYTHONHASHSEED": "0"}
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
LONGEST = 1_000_000  # largest limit in seconds, eleven days; the system's own waits allow little more


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
        limit: seconds per job, `LONGEST` at most.
        memory: bytes of address space per worker; 0 is no limit.
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
        self.function, self.limit, self.size = function, limit, workers
        self._arguments = [str(source), function, str(limit), str(memory), *users]
        self._users = bool(users)
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _kill, self._workers)

    def map(self, jobs: Sequence[Sequence[Any]]) -> list[Outcome]:
        """One outcome per job (the function's arguments); a TokenPOError if the pool is closed or no worker starts."""
        with self._lock:
            if not self._finalizer.alive:
                raise TokenPOError(f"the pool of workers for {self.function!r} is closed")
            try:
                return self._run(jobs)
            except BaseException:  # also Ctrl-C: a worker's late answer would be taken for one to the next call
                _kill(self._workers)
                raise

    def close(self) -> None:
        """Kills the workers; the pool can't be used again."""
        self._finalizer()

    def _run(self, jobs: Sequence[Sequence[Any]]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        waiting = deque(range(len(jobs)))
        while waiting or any(worker.job is not None for worker in self._workers):
            for worker in [worker for worker in self._workers if worker.idle]:
                if waiting and worker.give(waiting[0], jobs[waiting[0]], self.limit):
                    waiting.popleft()
            self._workers[:] = [worker for worker in self._workers if not worker.dead]
            starting = sum(not worker.ready for worker in self._workers)
            for _ in range(min(self.size - len(self._workers), len(waiting) - starting)):
                self._workers.append(_Worker(self._arguments, self._users))
            for worker in _until_one_speaks(self._workers):
                job, outcome = worker.job, worker.outcome()
                if outcome is not None and job is not None:
                    outcomes[job] = outcome
            self._workers[:] = [worker for worker in self._workers if not worker.dead]
        return [outcomes[job] for job in range(len(jobs))]


class _Worker:
    """One process; `job` is the number of its current job."""

    def __init__(self, arguments: list[str], users: bool) -> None:
        fill_standard_descriptors()
        theirs, self.ours = os.pipe()  # our end closes when this process ends, however it ends; then the worker ends
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
            os.close(self.ours)
            raise
        finally:
            os.close(theirs)
        self.stdin, self.stdout = present(self.process.stdin, "stdin"), present(self.process.stdout, "stdout")
        os.set_blocking(self.stdin.fileno(), False)  # the process may not read
        self.job: int | None = None
        self.ready = self.dead = False
        self.began = time.monotonic()
        self.deadline = self.began + (_USERS_START_LIMIT if users else _START_LIMIT)
        self._buffer, self._note = b"", "timeout"
        with contextlib.suppress(BrokenPipeError):
            self._send([])

    @property
    def idle(self) -> bool:
        return self.ready and self.job is None and not self.dead

    def give(self, number: int, job: Sequence[Any], limit: float) -> bool:
        """Begins to send a job, whose time runs from now on; False where the process has died."""
        self.began = time.monotonic()
        self.deadline = self.began + limit
        try:
            self._send(job)
        except BrokenPipeError:
            self.kill()
            return False
        self.job = number
        return True

    def write(self) -> None:
        """Sends as much of the job as the process takes now."""
        with contextlib.suppress(BlockingIOError):
            while self.unsent:
                self.unsent = self.unsent[os.write(self.stdin.fileno(), self.unsent) :]

    def outcome(self) -> Outcome | None:
        """The outcome of its job after it wrote, died or ran out of time; None while it isn't known."""
        message = self._read()
        if message is None:
            if not self.dead and time.monotonic() < self.deadline:
                return None
            self.kill()
            if not self.ready:
                raise TokenPOError(f"a worker process did not start ({self._note}): {' '.join(self.process.args)}")  # type: ignore[arg-type]
            return Outcome(None, self._note, time.monotonic() - self.began)
        if "failed" in message:
            raise TokenPOError(f"a worker process could not start: {message['failed']:.500}")
        if "ready" in message:
            self.ready = True
            return None
        self.job, took = None, time.monotonic() - self.began
        note = f"error: {message['error']}" if "error" in message else ""
        return Outcome(message.get("value"), note, took)

    def kill(self) -> None:
        """Ends the process and its children."""
        self.dead = True
        if self.process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        os.close(self.ours)

    def _send(self, job: Sequence[Any]) -> None:
        self._token = secrets.token_hex(16)
        self.unsent = memoryview(json.dumps([self._token, *job]).encode() + b"\n")
        self.write()

    def _read(self) -> dict[str, Any] | None:
        """The answer to the last line sent; None if it isn't complete or something else was written."""
        if _speaking([self], 0.0):
            chunk = os.read(self.stdout.fileno(), 1 << 16)
            if not chunk:
                self.dead, self._note = True, "crash"
            self._buffer += chunk
        token = self._token.encode()
        if token.startswith(self._buffer[: len(token)]):
            line, end, self._buffer = self._buffer.partition(b"\n")
            if not end:
                self._buffer = line
                return None
            with contextlib.suppress(ValueError, RecursionError):  # a value that JSON can write but not read
                return dict(json.loads(line.removeprefix(token)))
        self.dead, self._note = True, "not an answer"
        return None


def _until_one_speaks(workers: list[_Worker]) -> list[_Worker]:
    """Waits until a worker writes, dies or runs out of time, and returns all workers that did."""
    active = [worker for worker in workers if not worker.idle]
    if not active:
        return []
    spoke = _speaking(active, min(worker.deadline for worker in active) - time.monotonic())
    now = time.monotonic()
    return [worker for worker in active if worker in spoke or now >= worker.deadline]


def _speaking(workers: list[_Worker], seconds: float) -> list[_Worker]:
    """Sends jobs as far as workers take them, until some write or end, which it returns, or the seconds have passed."""
    end = time.monotonic() + seconds
    while True:
        with selectors.DefaultSelector() as selector:
            for worker in workers:
                selector.register(worker.stdout, selectors.EVENT_READ, worker)
                if worker.unsent:
                    selector.register(worker.stdin, selectors.EVENT_WRITE, worker)
            ready = selector.select(max(0.0, end - time.monotonic()))
        for key, event in ready:
            if event == selectors.EVENT_WRITE:
                try:
                    key.data.write()
                except BrokenPipeError:  # it will not read the rest
                    key.data.unsent = memoryview(b"")
        spoke = [key.data for key, event in ready if event == selectors.EVENT_READ]
        if spoke or time.monotonic() >= end:
            return spoke


def _kill(workers: list[_Worker]) -> None:
    while workers:
        workers.pop().kill()
