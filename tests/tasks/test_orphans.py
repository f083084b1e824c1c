"""A trainer that is killed takes its verifier processes along, whatever they are doing.

They hold the standard error of the trainer, which ends when the last of them is gone; else they would live for 1201 s.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tokenpo.base import pool as pool_module

REWARD = """
import os, re, subprocess, sys, time

def say():
    print("at work in", os.getpid(), flush=True)

def make(kind):
    if kind == "begins":
        say()
        time.sleep(1000)
    return reward

def reward(kind):
    children = [subprocess.Popen(["sleep", "1000"])] if kind == "has a child" else []
    say()
    while kind in ("computes", "has a child"):
        pass
    if kind == "lets nobody run":
        re.match("(a+)+$", "a" * 60 + "b")
"""
TRAINER = """
import signal, sys
from pathlib import Path
from tokenpo.base.pool import Pool

pool = Pool(Path(sys.argv[1]), "make", workers=1, limit=600, users=[sys.argv[2]])
pool.map([(sys.argv[2],)])
signal.pause()
"""
WORKER = """
import fcntl, importlib.util, sys

if hasattr(fcntl, "F_SETSIG"):
    del fcntl.F_SETSIG  # as where the kernel cannot do it
spec = importlib.util.spec_from_file_location("worker", sys.argv[1])
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
worker.main(int(sys.argv[2]), sys.argv[3], "make", 600.0, 0, sys.argv[4])
"""
ON_LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux's kernel watches a pipe")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "reward.py").write_text(REWARD)
    return tmp_path / "reward.py"


def began(command: Sequence[str], **more) -> tuple[subprocess.Popen, int]:
    """A process, and the one in which the reward function is at work."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True, **more)
    assert process.stderr is not None
    return process, int(process.stderr.readline().removeprefix(b"at work in "))


def all_gone(process: subprocess.Popen, worker: int) -> None:
    """Nobody holds the pipe any more; the minute is for a busy machine."""
    try:
        assert process.communicate(timeout=60)[1] == b""
        assert process.returncode == -signal.SIGKILL
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker, signal.SIGKILL)


@pytest.mark.parametrize(
    "kind", ["begins", "is idle", "computes", "has a child", pytest.param("lets nobody run", marks=ON_LINUX)]
)
def test_a_killed_trainer_leaves_no_worker(source: Path, kind: str) -> None:
    trainer, worker = began([sys.executable, "-c", TRAINER, str(source), kind])
    trainer.kill()
    all_gone(trainer, worker)


@pytest.mark.parametrize("kind", ["begins", "is idle", "computes", "has a child"])
def test_a_thread_watches_where_the_kernel_does_not(source: Path, kind: str) -> None:
    script, (theirs, ours) = Path(pool_module.__file__).with_name("worker.py"), os.pipe()
    command = [sys.executable, "-c", WORKER, str(script), str(theirs), str(source), kind]
    # Its stdin stays open: it is not for want of jobs that it ends.
    jobs = os.pipe()
    os.write(jobs[1], f'["token"]\n["token", "{kind}"]\n'.encode())
    worker, number = began(command, stdin=jobs[0], stdout=subprocess.DEVNULL, pass_fds=[theirs])
    os.close(ours)
    all_gone(worker, number)
    for end in (theirs, *jobs):
        os.close(end)


def test_a_worker_that_comes_too_late_ends_at_once(source: Path) -> None:
    script, (theirs, ours) = Path(pool_module.__file__).with_name("worker.py"), os.pipe()
    os.close(ours)
    command = [sys.executable, "-P", str(script), str(theirs), str(source), "make", "600", "0", "begins"]
    worker = subprocess.Popen(command, stderr=subprocess.PIPE, pass_fds=[theirs], start_new_session=True)
    os.close(theirs)
    all_gone(worker, worker.pid)


def test_a_worker_outlives_the_thread_that_started_it(source: Path) -> None:
    """And the pool does not keep the files of those that it has killed."""
    open_before = len([*Path("/dev/fd").iterdir()])
    pool = pool_module.Pool(source, "make", workers=1, limit=600, users=["is idle"])
    starter = threading.Thread(target=pool.map, args=[[("is idle",)]])
    starter.start()
    starter.join()
    (worker,) = pool._workers
    assert pool.map([("is idle",)]) == [pool_module.Outcome(None)]
    assert pool._workers == [worker]
    pool.close()
    assert len([*Path("/dev/fd").iterdir()]) == open_before
