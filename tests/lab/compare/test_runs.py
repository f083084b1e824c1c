"""Processes of a comparison, with children that only pretend to train."""

import contextlib
import fcntl
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from tokenpo.base.errors import TokenPOError
from tokenpo.lab.compare.runs import Ended, State, execute, state, steps_made
from tokenpo.train.run.directory import hold
from waiting import wait_for
from written_runs import rows, write_run

# What a child does: says who it is, obeys the orders in its run directory's name, writes its last step.
CHILD = """
import json, os, signal, sys, time
directory, resume, steps, order = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
if order == "train":
    def same(fd):
        try: return os.path.samestat(os.fstat(fd), os.stat(os.path.join(os.path.dirname(directory), ".lock")))
        except OSError: return False
    holds = any(map(same, map(int, os.listdir("/dev/fd"))))
    print(os.getpid(), os.getsid(0), holds, os.environ["OMP_NUM_THREADS"], os.environ["PYTHONPATH"])
os.makedirs(directory, exist_ok=True)
with open(os.path.join(directory, "started"), "a") as file: file.write(resume + "\\n")
if order == "fail":
    sys.exit("some warning\\ntokenpo: the \\x1b[31mmodel is gone\\nTraceback is not the last word? it is not ours")
if order == "trace": raise RuntimeError("out of luck")
if order == "die": os.kill(os.getpid(), signal.SIGKILL)
if order == "quiet": sys.exit(3)
if order == "meet":  # until two ran side by side
    for _ in range(6000):
        if os.path.exists(os.path.join(os.path.dirname(directory), "met")): break
        time.sleep(0.01)
if order == "wait":
    asked = []
    signal.signal(signal.SIGINT, lambda *_: asked.append(1))
    open(os.path.join(directory, "ready"), "w").close()
    while not asked: time.sleep(0.01)
    time.sleep(0.1)
    open(os.path.join(directory, f"saved-{len(asked)}"), "w").close()
    sys.exit(130)
if order != "idle":
    with open(os.path.join(directory, "metrics.jsonl"), "a") as file: file.write(json.dumps({"step": steps}) + "\\n")
"""


class Watcher:
    def __init__(self):
        self.over, self.most, self.met = [], 0, None

    def ended(self, run, seconds, failure):
        self.over.append((run.name, failure.line if failure else None))
        assert seconds > 0

    def running(self, active, waiting):
        self.most = max(self.most, len(active))
        if self.met and len(active) == 2:
            self.met.touch()


@pytest.fixture
def watcher():
    return Watcher()


def pretend(**orders):
    """A command whose child follows `orders[label]`."""

    def command(run, resume):
        order = orders.get(run.label, "train")
        words = [str(run.directory), str(resume), str(run.config.train.steps), order]
        return [sys.executable, "-I", "-S", "-c", CHILD, *words]

    return command


def resumes(run):
    return (run.directory / "started").read_text().split()


def begin(run, step=5, checkpoint=True):
    """A run that stopped after `step`."""
    write_run(run, rows(step, 5, lambda s: 0.1))
    if checkpoint:
        (run.directory / "checkpoints" / "step-000005").mkdir(parents=True)


def test_states(plan):
    run, *_ = plan().runs
    assert state(run) is State.NEW
    run.directory.mkdir(parents=True)
    assert state(run) is State.NEW  # an empty directory, as `tokenpo train` takes it
    begin(run, checkpoint=False)
    assert state(run) is State.LOST
    begin(run)
    assert (state(run), steps_made(run)) == (State.BEGUN, 5)
    write_run(run, rows(20, 5, lambda s: 0.1))
    assert (state(run), steps_made(run)) == (State.DONE, 20)
    log = run.directory / "metrics.jsonl"
    log.write_text(log.read_text()[:-1])  # the last line is cut: it is not whole
    assert (state(run), steps_made(run)) == (State.BEGUN, 19)
    log.write_text("")
    assert (state(run), steps_made(run)) == (State.BEGUN, 0)


def test_what_is_not_this_run_is_refused(plan):
    run, *_ = plan().runs
    write_run(plan(overrides=["output.samples=0", "output.trace_every=0"]).runs[0], rows(20, 5, lambda s: 0.1))
    assert state(run) is State.DONE  # settings of the output may differ
    other = plan(overrides=["train.lr=0.5", "train.steps=10"]).runs[0]
    write_run(other, rows(10, 5, lambda s: 0.1))
    with pytest.raises(TokenPOError, match=r"another config \(train.lr: 0.5 -> 0.0002; train.steps: 10 -> 20\)"):
        state(run)
    for text, message in (('{"train": ', "config.json cannot be read"), ('{"trian": {}}', "did you mean 'train'")):
        (run.directory / "config.json").write_text(text)
        with pytest.raises(TokenPOError, match=message):
            state(run)
    (run.directory / "config.json").unlink()
    with pytest.raises(TokenPOError, match=r"grpo-seed0 is no run"):
        state(run)


def test_done_is_skipped_begun_goes_on_lost_begins_anew(plan, watcher):
    made = plan(seeds=2)
    done, begun, lost, fresh = made.runs
    write_run(done, rows(20, 5, lambda s: 0.1))
    begin(begun)
    begin(lost, checkpoint=False)
    watcher.met = done.directory.parent / "met"
    orders = dict.fromkeys({run.label for run in made.runs}, "meet")
    assert execute(made.runs, 2, made.subject.place, watcher, pretend(**orders)) == Ended((), False)
    assert not (done.directory / "started").exists()
    assert (resumes(begun), resumes(lost), resumes(fresh)) == (["True"], ["False"], ["False"])
    assert not (lost.directory / "config.json").exists()  # it was emptied: the child writes it
    assert sorted(name for name, _ in watcher.over) == sorted(run.name for run in (begun, lost, fresh))
    assert watcher.most == 2


def test_a_run_that_another_process_trains_is_left_alone(plan, watcher):
    """Even without a checkpoint. The child is to resume it, and finds the lock itself."""
    made = plan(seeds=2)
    lost = made.runs[0]
    begin(lost, checkpoint=False)
    with hold(lost.directory):
        ended = execute([lost], 1, made.subject.place, watcher)
    assert [failure.line for failure in ended.failures] == [
        f"{lost.directory} is being trained by another process: wait for it, or stop it"
    ]
    assert (lost.directory / "config.json").exists() and steps_made(lost) == 5


def test_a_failed_run_is_quoted_and_the_others_run(plan, watcher):
    made = plan("grpo,dapo,tepo,hapo,gspo,opo", 2)
    command = pretend(dapo="fail", tepo="die", hapo="idle", gspo="trace", opo="quiet")
    ended = execute(made.runs, 3, made.subject.place, watcher, command)
    lines = {failure.run.label: failure.line for failure in ended.failures}
    assert len(ended.failures) == 10 and not ended.interrupted
    assert lines == {
        "dapo": "the ␛[31mmodel is gone",  # the last line of ours, and nothing in it moves a cursor
        "tepo": "ended by SIGKILL, perhaps for want of memory",
        "hapo": "ended without making all of its steps",
        "gspo": "RuntimeError: out of luck",
        "opo": "ended with status 3",
    }
    assert [run.label for run in made.runs if steps_made(run) == 20] == ["grpo", "grpo"]
    assert sorted(watcher.over) == sorted((run.name, lines.get(run.label)) for run in made.runs)
    again = made.runs[1]  # the quoted line is this attempt's, and the log keeps both
    (again.directory / "started").unlink()
    (failure,) = execute([again], 1, made.subject.place, watcher, pretend(dapo="trace")).failures
    assert failure.line == "RuntimeError: out of luck" and "model is gone" in failure.log.read_text()


def test_an_interrupt_lets_runs_save_and_starts_no_more(plan, watcher):
    made = plan(seeds=2)

    def press():
        while not all((run.directory / "ready").exists() for run in made.runs[:2]):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    ended = execute(made.runs, 2, made.subject.place, watcher, pretend(grpo="wait", dapo="wait"))
    thread.join()
    assert ended == Ended((), True)
    for run in made.runs[:2]:
        assert (run.directory / "saved-1").exists()  # asked once
    assert not made.runs[2].directory.exists() and not made.runs[3].directory.exists()
    assert watcher.over == []  # they are neither done nor failed
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# The command, but that it waits in the place of what it would do.
TRAINER = """
import pathlib, sys, time
from tokenpo.cli import main
main._answer = lambda _: (pathlib.Path(sys.argv[1]).touch(), time.sleep(600))
main.main([])
"""


def test_a_killed_comparison_takes_its_trainer_along(plan, watcher, tmp_path):
    """The trainer holds the lock of the comparison for as long as it lives."""
    made, begun = plan(seeds=2), tmp_path / "begun"
    command = [sys.executable, "-c", TRAINER, str(begun)]
    work = (made.runs, 1, made.subject.place, watcher, lambda run, resume: command)
    compare = multiprocessing.get_context("fork").Process(target=execute, args=work)
    compare.start()
    wait_for(begun.exists)
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    (trainer,) = (int(pid) for pid, parent in map(str.split, listed.splitlines()) if int(parent) == compare.pid)
    try:
        compare.kill()
        compare.join()
        with (made.subject.place / ".lock").open("w") as lock:
            wait_for(functools.partial(is_free, lock), seconds=20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(trainer, signal.SIGKILL)


def is_free(lock):
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True


def test_one_comparison_at_a_time_in_a_place_that_can_be_written(plan, watcher, tmp_path):
    made = plan()
    made.subject.place.mkdir()
    with (made.subject.place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TokenPOError, match="another comparison"):
            execute(made.runs, 1, made.subject.place, watcher, pretend())
    (tmp_path / "file").touch()
    with pytest.raises(TokenPOError, match="give another with --out"):
        execute(made.runs, 1, tmp_path / "file" / "out", watcher, pretend())


def test_a_child_gets_threads_and_the_import_path_and_stands_apart(plan, watcher, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setattr(sys, "path", [*sys.path, "/some/verifiers"])
    made = plan(seeds=2, overrides=["threads=3"])
    execute(made.runs[:1], 1, made.subject.place, watcher, pretend())
    (log,) = (made.subject.place / "logs").iterdir()
    pid, session, holds, threads, path = log.read_text().split(maxsplit=4)
    assert threads == "3" and path.strip().endswith("/some/verifiers")
    assert pid == session  # Ctrl-C on the terminal does not reach it, only what we send
    assert holds == "True"  # while it lives, nobody else works in this directory
