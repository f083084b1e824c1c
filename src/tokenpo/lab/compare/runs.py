"""Trains the runs of a plan as processes, several at once.

Finished runs are skipped, unfinished ones resumed, and a directory with other contents is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import IO, NamedTuple, TextIO

from rich.text import Text

from ...base.errors import TokenPOError
from ...base.files import is_fresh, lock_file, locked, opened_in_place, read_text
from ...base.jsonl import last_line
from ...base.terminal import Console, Interrupt
from ...base.text import duration
from ...base.worker import PARENT
from ...records.run import PLACES
from ...train.recipe.config import differences, parse_config
from ...train.recipe.plan import Plan
from ...train.run import checkpoint
from ...train.run.directory import changed_inputs, hold
from ..page.text import visible
from .plan import PlannedRun

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
POLL = 0.05  # seconds between looks at the processes


class State(Enum):
    """The state of a run directory: empty, a run to resume, a run to begin anew, or a finished run."""

    NEW = "new"
    BEGUN = "begun"
    LOST = "begun, no checkpoint"
    DONE = "done"


class Failure(NamedTuple):
    """A run that ended before its last step; `line` is the last error line of its log."""

    run: PlannedRun
    line: str
    log: Path


class Ended(NamedTuple):
    """The runs that failed, and whether Ctrl-C stopped the comparison."""

    failures: tuple[Failure, ...]
    interrupted: bool


Command = Callable[[PlannedRun, bool], list[str]]


def train_command(run: PlannedRun, resume: bool) -> list[str]:
    again = ["--resume", str(run.directory)] if resume else []
    return [sys.executable, "-P", "-m", "tokenpo", "train", *run.arguments, *again]


def state(run: PlannedRun) -> State:
    """The state of a run's directory; TokenPOError for another run's, or a directory without a run."""
    if not run.directory.exists() or (run.directory.is_dir() and is_fresh(run.directory)):
        return State.NEW
    file = run.directory / "config.json"
    if not file.is_file():
        raise TokenPOError(f"{run.directory} is no run (it holds no {file.name}): move it, or choose another --out")
    try:
        old = parse_config(json.loads(read_text(file)), str(file))
    except (ValueError, TypeError, OSError) as error:
        raise TokenPOError(f"{file} cannot be read ({error}): move {run.directory}, or choose another --out") from error
    changed = [line for line in differences(old, run.config) if not line.startswith("output.")]
    changed += changed_inputs(run.directory, Plan(run.config))
    if changed:
        raise TokenPOError(
            f"{run.directory} holds a run with another config ({'; '.join(changed)}): give the settings and files that "
            "it was made with, or choose another --out"
        )
    if is_whole(run):
        return State.DONE
    return State.BEGUN if any(run.directory.glob("checkpoints/step-*")) else State.LOST


def is_whole(run: PlannedRun) -> bool:
    """Whether all steps are made, and the model is saved if a checkpoint still exists to save it from."""
    steps = run.config.train.steps
    return steps_made(run) >= steps and not checkpoint.owes_model(run.directory, steps)


def steps_made(run: PlannedRun) -> int:
    """The last step in the whole lines of metrics.jsonl; 0 without one."""
    for place in PLACES:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            return int(json.loads(last_line(run.directory / place / "metrics.jsonl"))["step"])
    return 0


def execute(
    runs: Sequence[PlannedRun], jobs: int, out: Path, watcher: ProgressLines, command: Command = train_command
) -> Ended:
    """Trains every unfinished run, `jobs` at a time. A run that fails does not stop the others.

    On Ctrl-C the active runs save a checkpoint and end, and no more are started.
    """
    busy = f"another comparison, or a run that it left behind, is at work in {out}: wait, or choose another --out"
    with locked(lock_file(out), busy) as lock, Interrupt() as interrupt:
        states = [(run, state(run)) for run in runs]
        waiting = deque((run, status) for run, status in states if status is not State.DONE)
        active: list[_Process] = []
        failures: list[Failure] = []
        stopping = False
        try:
            while waiting or active:
                if interrupt.asked and not stopping:
                    stopping = True
                    waiting.clear()
                    for process in active:
                        process.popen.send_signal(signal.SIGINT)
                while waiting and len(active) < jobs:
                    active.append(_Process(*waiting.popleft(), out, lock, command))
                for process in [process for process in active if process.popen.poll() is not None]:
                    active.remove(process)
                    failure = process.failure(stopped=stopping)
                    failures += [failure] if failure else []
                    if failure or is_whole(process.run):
                        watcher.ended(process.run, time.monotonic() - process.began, failure)
                watcher.running([process.run for process in active], len(waiting))
                time.sleep(POLL if active else 0)
        finally:
            for process in active:
                process.kill()
    return Ended(tuple(failures), stopping)


class _Process:
    """A run in a process of its own; its output goes to OUT/logs."""

    def __init__(self, run: PlannedRun, status: State, out: Path, lock: IO[str], command: Command) -> None:
        self.run, self.began = run, time.monotonic()
        resume = status is State.BEGUN or (status is State.LOST and not _emptied(run.directory))
        self._log = out / "logs" / f"{run.directory.name}.log"
        self._log.parent.mkdir(exist_ok=True)
        self._start = self._log.stat().st_size if self._log.exists() else 0
        # The config's number of threads, and this process's import path, which may have a user's verifiers.
        threads = dict.fromkeys(THREADS, str(run.config.threads or 1))
        path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
        # Our end closes when this process ends in any way; the child then sees it and ends too.
        theirs, self._ours = os.pipe()
        with os.fdopen(opened_in_place(self._log, os.O_WRONLY | os.O_APPEND), "ab") as log:
            self.popen = subprocess.Popen(
                command(run, resume),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **threads, "PYTHONPATH": path, PARENT: str(theirs)},
                # A process group of its own: Ctrl-C reaches it only through us. It keeps the lock as long as it lives.
                start_new_session=True,
                pass_fds=(lock.fileno(), theirs),
            )
        os.close(theirs)

    def kill(self) -> None:
        os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        os.close(self._ours)

    def failure(self, *, stopped: bool) -> Failure | None:
        """The failure of an ended process; None for a finished run, and for one that was asked to stop."""
        code = self.popen.wait()
        os.close(self._ours)
        if stopped or (code == 0 and is_whole(self.run)):
            return None
        with self._log.open("rb") as log:
            log.seek(self._start)
            lines = [line.strip() for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
        own_lines = [line for line in lines if line.startswith("tokenpo: ")]
        message = (own_lines or lines or [""])[-1].removeprefix("tokenpo: ")
        if code < 0:
            name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
            message = f"ended by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")
        elif code == 0:
            message = "ended without making all of its steps"
        return Failure(self.run, visible(message or f"ended with status {code}", limit=400), self._log)


def _emptied(directory: Path) -> bool:
    """Removes a run without a checkpoint; False if another process holds it, which a resumed run reports."""
    with contextlib.suppress(TokenPOError), hold(directory):
        # It is ours: its config is the plan's.
        shutil.rmtree(directory)
    return not directory.exists()


class ProgressLines:
    """Prints a line for every run that ends, and on a terminal a status line with the active runs."""

    def __init__(self, runs: Sequence[PlannedRun], jobs: int, out: Path, stream: TextIO) -> None:
        self._console = Console(stream, highlight=False)
        self._status = self._console.status("") if self._console.is_terminal else None
        self._all, self._jobs = len(runs), jobs
        self._done = sum(state(run) is State.DONE for run in runs)
        self._left = self._all - self._done
        self._seconds: list[float] = []
        self._updated = 0.0
        self._say(f"{out}: {self._all} runs, {self._done} done, {jobs} at a time")

    def ended(self, run: PlannedRun, seconds: float, failure: Failure | None) -> None:
        self._done += failure is None
        self._left -= 1
        self._seconds.append(seconds)
        expected = self._left * sum(self._seconds) / len(self._seconds) / self._jobs
        left = f", about {duration(expected)} left" if self._left else ""
        how = f"failed: {failure.line}" if failure else "done"
        self._say(f"[{self._done}/{self._all}] {run.name}: {how} in {duration(seconds)}{left}")

    def running(self, active: Sequence[PlannedRun], waiting: int) -> None:
        if self._status is None or (active and time.monotonic() - self._updated < 1):
            return
        self._updated = time.monotonic()
        now = ", ".join(f"{run.name} step {steps_made(run)}/{run.config.train.steps}" for run in active)
        self._status.update(Text(f"{now}; {waiting} waiting", no_wrap=True, overflow="ellipsis"))
        (self._status.start if active else self._status.stop)()

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)
