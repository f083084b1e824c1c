"""The pool: order, hanging and dying verifiers, start-up failures, close."""

import functools
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tokenpo.base.errors import TokenPOError
from tokenpo.base.pool import Outcome, Pool
from waiting import wait_for

VERIFIER = """
import os, sys, time

def verify(kind, value=None):
    print("chatter on stdout")
    if kind == "hang":
        while True: pass
    if kind == "die":
        os._exit(3)
    if kind == "raise":
        raise KeyError(value)
    if kind == "quit":
        sys.exit(0)
    if kind == "memory":
        return len(bytearray(value))
    if kind == "unprintable":
        return {1, 2}
    if kind == "child":
        import subprocess
        child = subprocess.Popen(["sleep", "60"])
        open(value, "w").write(str(child.pid))
        time.sleep(60)
    if kind == "state":
        heavy = [name for name in sys.modules if name.startswith(("torch", "tokenpo"))]
        return [heavy, list({"a", "b", "c", "d"}), os.getpid()]
    return value
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "verifier.py").write_text(VERIFIER)
    return tmp_path / "verifier.py"


@pytest.fixture
def pool(source: Path) -> Iterator[Pool]:
    pool = Pool(source, "verify", workers=2, limit=0.7, memory=2**30)
    yield pool
    pool.close()


def test_outcomes_come_in_the_order_of_the_jobs(pool: Pool) -> None:
    assert pool.map([]) == []
    texts = [f"{i} \ud800 \u2028 é\n" * (1 + 997 * (i % 3)) for i in range(60)]
    assert pool.map([("echo", text) for text in texts]) == [Outcome(text) for text in texts]
    assert len(pool._workers) == 2


def test_a_hang_a_death_and_an_exception_cost_one_answer_each(pool: Pool) -> None:
    kinds = ["echo", "hang", "die", "raise", "quit", "memory", "unprintable", "echo", "die", "echo"]
    start = time.monotonic()
    outcomes = pool.map([(kind, 2**31 if kind == "memory" else 7) for kind in kinds])
    died, errors = "crash", [f"error: {name}" for name in ("KeyError", "MemoryError", "TypeError")]
    notes = ["", "timeout", died, errors[0], died, errors[1], errors[2], "", died, ""]
    assert [outcome.note for outcome in outcomes] == notes
    assert [outcome.value for outcome in outcomes if not outcome.note] == [7, 7, 7]
    assert time.monotonic() - start < 20
    assert pool.map([("echo", 1)]) == [Outcome(1)]


def test_workers_are_lean_and_their_set_order_is_fixed(source: Path) -> None:
    lean = []
    for _ in range(2):
        pool = Pool(source, "verify", workers=1)
        lean.append(pool.map([("state",)])[0].value[:2])
        pool.close()
    assert lean[0] == lean[1] and lean[0][0] == []


def test_what_was_under_way_at_an_interrupt_answers_no_later_job(source: Path) -> None:
    pool = Pool(source, "verify", workers=1, limit=60)
    assert pool.map([("echo", 1)]) == [Outcome(1)]
    interrupt = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
    interrupt.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        pool.map([("hang",), ("echo", "second")])
    assert time.monotonic() - began < 20
    assert pool.map([("echo", 2)]) == [Outcome(2)]
    pool.close()


def test_a_kill_reaches_the_children_of_a_worker(pool: Pool, tmp_path: Path) -> None:
    note = tmp_path / "child"
    assert pool.map([("child", str(note))]) == [Outcome(None, "timeout")]
    wait_for(functools.partial(is_dead, note.read_text()), seconds=30)  # on a busy machine a signal takes its time


def is_dead(process: str) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", process], capture_output=True, text=True).stdout
    return not state or state.startswith("Z")


def test_a_verifier_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import no_such_package")
    with pytest.raises(TokenPOError, match=r"could not start: ModuleNotFoundError.*no_such_package"):
        Pool(tmp_path / "broken.py", "verify").map([("echo", 1)])
    (tmp_path / "dying.py").write_text("import os; os._exit(1)")
    with pytest.raises(TokenPOError, match="could not start: crash"):
        Pool(tmp_path / "dying.py", "verify").map([("echo", 1)])
