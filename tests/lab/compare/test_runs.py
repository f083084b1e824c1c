"""Processes of a comparison, with children that only pretend to train."""

import os
import signal
import sys
import threading
import time

from tokenpo.lab.compare.plan import Ended, State, execute, state, steps_made
from tokenpo.train.run.directory import hold
from written_runs import rows, write_run

# What a child does: says who it is, obeys the orders in its run directory's name, writes its last step.
CHILD = """
import json, os, signal, sys, time
directory, resume, steps, order = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
if order == "train": print(os.getpid(), os.getsid(0), os.environ["OMP_NUM_THREADS"], os.environ["PYTHONPATH"])
os.makedirs(directory, exist_ok=True)
with open(os.path.join(directory, "started"), "a") as file: file.write(resume + "\\n")
if order == "fail":
    sys.exit("some warning\\ntokenpo: the \\x1b[31mmodel is gone\\nTraceback is not the last word? it is not ours")
if order == "trace": raise RuntimeError("out of luck")
if order == "die": os.kill(os.getpid(), signal.SIGKILL)
if order == "quiet": sys.exit(3)
if order == "meet":  # the run of the same seed, side by side
    other = directory.replace("grpo", "X").replace("dapo", "grpo").replace("X", "dapo")
    while not os.path.exists(os.path.join(other, "started")): time.sleep(0.01)
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


def pretend(**orders):
    """A command whose child follows `orders[label]`."""

    def command(run, resume):
        order = orders.get(run.label, "train")
        words = [str(run.directory), str(resume), str(run.config.train.steps), order]
        return [sys.executable, "-I", "-S", "-c", CHILD, *words]

    return command


def resumes(run):
    return (run.directory / "started").read_text().split()


def begin(run, step=5):
    """A run that stopped after `step`."""
    write_run(run, rows(step, 5, lambda s: 0.1))
    (run.directory / "checkpoints" / "step-000005").mkdir(parents=True)


def test_states(plan):
    run, *_ = plan().runs
    assert state(run) is State.NEW
    run.directory.mkdir(parents=True)
    assert state(run) is State.NEW  # an empty directory, as `tokenpo train` takes it
    begin(run)
    assert (state(run), steps_made(run)) == (State.BEGUN, 5)
    write_run(run, rows(20, 5, lambda s: 0.1))
    assert (state(run), steps_made(run)) == (State.DONE, 20)
    log = run.directory / "metrics.jsonl"
    log.write_text(log.read_text()[:-2])  # the last line is cut: it is not whole
    assert (state(run), steps_made(run)) == (State.BEGUN, 19)
    log.write_text("")
    assert (state(run), steps_made(run)) == (State.BEGUN, 0)


def test_done_is_skipped_and_begun_goes_on(plan, capsys):
    """Two at a time: the first two runs wait for each other. Another process trains the last one."""
    made = plan(seeds=3)
    begun, new, done, held, fresh, other = made.runs
    write_run(done, rows(20, 5, lambda s: 0.1))
    begin(begun)
    write_run(held, rows(5, 5, lambda s: 0.1))
    with hold(held.directory):
        (failure,) = execute([held], 1, made.subject.place).failures
    assert failure.line == f"{held.directory} is being trained by another process: wait for it, or stop it"
    assert (held.directory / "config.json").exists() and steps_made(held) == 5
    command = pretend(grpo="meet", dapo="meet")
    assert execute([begun, new, done, fresh, other], 2, made.subject.place, command) == Ended((), False)
    assert not (done.directory / "started").exists()
    assert [resumes(run) for run in (begun, new, fresh)] == [["True"], ["False"], ["False"]]
    printed = capsys.readouterr().out.splitlines()[2:]
    assert printed[0] == f"{made.subject.place}: 5 runs, 1 done, 2 at a time"
    assert [line.partition("]")[0] for line in printed[1:]] == ["[2/5", "[3/5", "[4/5", "[5/5"]
    assert sorted(line.split("] ")[1].partition(": done in ")[0] for line in printed[1:]) == sorted(
        run.name for run in (begun, new, fresh, other)
    )


def test_a_failed_run_is_quoted_and_the_others_run(plan, capsys):
    made = plan("grpo,dapo,tepo,hapo,gspo,opo", 2)
    command = pretend(dapo="fail", tepo="die", hapo="idle", gspo="trace", opo="quiet")
    ended = execute(made.runs, 3, made.subject.place, command)
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
    assert "opo seed 1: failed: ended with status 3 in " in capsys.readouterr().out
    (made.runs[1].directory / "started").unlink()
    (failure,) = execute([made.runs[1]], 1, made.subject.place, pretend(dapo="trace")).failures
    assert failure.line == "RuntimeError: out of luck"  # this attempt's


def test_an_interrupt_lets_runs_save_and_starts_no_more(plan, capsys):
    made = plan(seeds=2)

    def press():
        while not all((run.directory / "ready").exists() for run in made.runs[:2]):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    ended = execute(made.runs, 2, made.subject.place, pretend(grpo="wait", dapo="wait"))
    thread.join()
    assert ended == Ended((), True)
    for run in made.runs[:2]:
        assert (run.directory / "saved-1").exists()  # asked once
    assert not made.runs[2].directory.exists() and not made.runs[3].directory.exists()
    assert capsys.readouterr().out.count("\n") == 1  # they are neither done nor failed
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_child_gets_threads_and_the_import_path_and_stands_apart(plan, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setattr(sys, "path", [*sys.path, "/some/verifiers"])
    made = plan(seeds=2, overrides=["threads=3"])
    execute(made.runs[:1], 1, made.subject.place, pretend())
    (log,) = (made.subject.place / "logs").iterdir()
    pid, session, threads, path = log.read_text().split(maxsplit=3)
    assert threads == "3" and path.strip().endswith("/some/verifiers")
    assert pid == session  # Ctrl-C on the terminal does not reach it, only what we send
