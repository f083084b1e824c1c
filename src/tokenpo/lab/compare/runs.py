"""Trains the runs of a plan as processes, several at once.

Finished runs are skipped, unfinished ones resumed, and a directory with other contents is refused.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from ...base.errors import TokenPOError
from ...base.files import is_fresh, make_directory, opened_in_place, read_text
from ...base.jsonl import last_line
from ...base.terminal import Interrupt
from ...base.text import duration
from ...train.recipe.config import differences, parse_config
from ...train.recipe.plan import Plan
from ...train.run import checkpoint
from ...train.run.directory import changed_inputs
from ..page.text import visible
from .plan import PlannedRun

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
POLL = 0.05  # seconds between looks at the processes


class State(Enum):
    """The state of a run directory: empty, a run to resume, or a finished run."""

    NEW = "new"
    BEGUN = "begun"
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
    return State.DONE if is_whole(run) else State.BEGUN


def is_whole(run: PlannedRun) -> bool:
    """Whether all steps are made, and the model is saved if a checkpoint still exists to save it from."""
    steps = run.config.train.steps
    return steps_made(run) >= steps and not checkpoint.owes_model(run.directory, steps)


def steps_made(run: PlannedRun) -> int:
    """The last step in the whole lines of metrics.jsonl; 0 without one."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads(last_line(run.directory / "metrics.jsonl"))["step"])
    return 0


def execute(runs: Sequence[PlannedRun], jobs: int, out: Path, command: Command = train_command) -> Ended:
    """Trains every unfinished run, `jobs` at a time. A run that fails does not stop the others.

    Prints a line for each run that ends. On Ctrl-C the active runs save a checkpoint and end, and no more are started.
    """
    waiting = [(run, its) for run in runs if (its := state(run)) is not State.DONE]
    print(f"{out}: {len(runs)} runs, {len(runs) - len(waiting)} done, {jobs} at a time", flush=True)
    logs = make_directory(out / "logs")
    active: list[_Process] = []
    failures: list[Failure] = []
    stopping = False
    with Interrupt() as interrupt:
        try:
            while waiting or active:
                if interrupt.asked and not stopping:
                    stopping = True
                    waiting.clear()
                    for process in active:
                        process.popen.send_signal(signal.SIGINT)
                while waiting and len(active) < jobs:
                    active.append(_begin(*waiting.pop(0), logs, command))
                for process in [process for process in active if process.popen.poll() is not None]:
                    active.remove(process)
                    if stopping:
                        continue
                    failure, left = _failure(process), len(waiting) + len(active)
                    failures += [failure] if failure else []
                    how = f"failed: {failure.line}" if failure else "done"
                    took = duration(time.monotonic() - process.began)
                    print(f"[{len(runs) - left}/{len(runs)}] {process.run.name}: {how} in {took}", flush=True)
                time.sleep(POLL if active else 0)
        finally:
            for process in active:
                process.popen.kill()
    return Ended(tuple(failures), stopping)


class _Process(NamedTuple):
    run: PlannedRun
    popen: subprocess.Popen[bytes]
    log: Path  # of this attempt
    began: float


def _begin(run: PlannedRun, status: State, logs: Path, command: Command) -> _Process:
    """Starts a run in a process group of its own, which Ctrl-C in the terminal does not reach."""
    target = logs / f"{run.directory.name}.log"
    # The config's number of threads, and this process's import path, which may have a user's verifiers.
    threads = dict.fromkeys(THREADS, str(run.config.threads or 1))
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    with os.fdopen(opened_in_place(target, os.O_WRONLY | os.O_TRUNC), "wb") as log:
        popen = subprocess.Popen(
            command(run, status is State.BEGUN),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **threads, "PYTHONPATH": path},
            start_new_session=True,
        )
    return _Process(run, popen, target, time.monotonic())


def _failure(process: _Process) -> Failure | None:
    """The failure of an ended process; None for a finished run."""
    code = process.popen.returncode
    if code == 0 and is_whole(process.run):
        return None
    lines = [line.strip() for line in process.log.read_text("utf-8", "replace").splitlines() if line.strip()]
    own_lines = [line for line in lines if line.startswith("tokenpo: ")]
    message = (own_lines or lines or [""])[-1].removeprefix("tokenpo: ")
    if code < 0:
        name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
        message = f"ended by {name}" + (", perhaps for want of memory" if name == "SIGKILL" else "")
    elif code == 0:
        message = "ended without making all of its steps"
    return Failure(process.run, visible(message or f"ended with status {code}", limit=400), process.log)
