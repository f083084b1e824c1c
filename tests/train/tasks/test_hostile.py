"""Data files and answers as nobody should write them: one sentence that names the place, and no wrong 1.0.

A trainer that is killed takes its processes along.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import verifiers as hostile


def test_no_answer_is_worth_one_wrongly_and_what_hangs_is_killed() -> None:
    """The kinds that take no time, and of those that may take forever a few, whose worker is killed and replaced."""
    quick = [a for a in hostile.answers(110, 1) if a.kind not in ("deep", "powers", "long")]
    deep = r"\boxed{" + r"\sqrt{" * 3000 + "43" + "}" * 3000 + "}"
    texts = (r"\boxed{9^{9^{9^{9}}}}", deep, "{" * 10**6 + r"\boxed{43}", "\\boxed{\ud800}")
    bombs = [hostile.Answer("bomb", text, "42", False) for text in texts]
    some = [*quick[:60], *bombs, *quick[60:]]
    scores, took = hostile.judge(some, 2.0, 1)
    assert len(scores) == len(some) > 95
    wrong = [(a.text[:80], a.reference) for a, s in zip(some, scores, strict=True) if s.reward == 1.0 and not a.right]
    assert not wrong
    assert {s.reward for s in scores} == {0.0, 1.0}
    missed = [a.text for a, s in zip(some, scores, strict=True) if a.right and not s.correct]
    assert not missed
    assert max(took) < 2.0 + 5 * hostile.SLACK  # a machine may be busy; benchmarks/verifiers.py is strict


REWARD = """
import os, subprocess, time

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
"""
TRAINER = """
import signal, sys
from pathlib import Path
from tokenpo.base.pool import Pool

pool = Pool(Path(sys.argv[1]), "make", workers=1, limit=600, users=[sys.argv[2]])
pool.map([(sys.argv[2],)])
signal.pause()
"""


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


@pytest.mark.parametrize("kind", ["begins", "is idle", "computes", "has a child"])
def test_a_killed_trainer_leaves_no_worker(source: Path, kind: str) -> None:
    trainer, worker = began([sys.executable, "-c", TRAINER, str(source), kind])
    trainer.kill()
    all_gone(trainer, worker)
