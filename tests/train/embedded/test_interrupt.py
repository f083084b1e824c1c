"""Ctrl-C saves, says how to go on, and what goes on is the same run."""

import os
import pty
import signal
import sys
from pathlib import Path

import pytest

from run_views import Watch, numbers
from tokenpo.base.errors import TokenPOError
from tokenpo.base.terminal import Interrupt
from tokenpo.cli.main import main
from tokenpo.train.recipe.plan import Plan
from tokenpo.train.run.directory import describe
from tokenpo.train.run.loop import resume, train
from tokenpo.train.run.step import View

from .test_resume import logged

SCRIPT = """
import importlib.util, os, sys
import torch
import tokenpo.train.recipe.plan as plan
from tokenpo.cli.main import main

sys.path.insert(0, os.path.abspath(os.path.join(sys.argv[1], *[".."] * 3)))  # as tests/conftest.py does
spec = importlib.util.spec_from_file_location("fixtures", sys.argv[1])
fixtures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fixtures)

torch.set_num_threads(1)
plan.make_task = lambda name, options, seed: fixtures.Coin()
sys.exit(main(["train", sys.argv[2]]))
"""


def script(folder: Path, config) -> list[str]:
    """The command that trains this config by the script."""
    recipe = folder / "described"
    recipe.mkdir()
    describe(recipe, Plan(config))
    return [sys.executable, "-c", SCRIPT, str(Path(__file__).with_name("conftest.py")), str(recipe / "config.json")]


def twice(small, tmp_path, **evaluate):
    """The config of a run that will be disturbed; the same run, undisturbed, is made in `once`."""
    settings = {"evaluate": {"problems": 0, **evaluate}, "method": {"name": "hapo"}}
    train(small(tmp_path / "once", **settings), View())
    return small(tmp_path / "twice", **settings)


def test_an_interrupted_run_resumes_bit_for_bit(small, coin, tmp_path, capsys, monkeypatch):
    config = twice(small, tmp_path)
    score, batches = coin.score, iter(range(1, 100))

    def impatient(*arguments):
        if next(batches) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return score(*arguments)

    monkeypatch.setattr(coin, "score", impatient)
    *_, recipe = script(tmp_path, config)
    assert main(["train", recipe]) == 130
    assert f"stopped after step 2; go on with: tokenpo train --resume {tmp_path / 'twice'}" in capsys.readouterr().out
    assert len(numbers(tmp_path / "twice")) == 2
    assert main(["train", "--resume", str(tmp_path / "twice"), "--no-report"]) == 0
    assert "resuming" in capsys.readouterr().out
    assert logged(tmp_path / "once") == logged(tmp_path / "twice")


@pytest.mark.parametrize(("split", "asked", "step"), [("train", 4, 3), ("test", 2, 2), ("test", 3, 4)])
def test_a_failed_reward_loses_no_step(split, asked, step, small, coin, tmp_path, monkeypatch):
    """In a rollout, in an evaluation, and in the last one."""
    config = twice(small, tmp_path, problems=2, every=2, samples=0)
    score, asks = coin.score, iter(range(1, 100))

    def failing(*arguments):
        if coin.seen[-1][0] == split and next(asks) == asked:
            raise TokenPOError("the reward's service is down")
        return score(*arguments)

    monkeypatch.setattr(coin, "score", failing)
    watch = Watch()
    with pytest.raises(TokenPOError, match="down"):
        train(config, watch)
    assert f"saved after step {step}; go on with: tokenpo train --resume {tmp_path / 'twice'}" in watch.lines
    resume(tmp_path / "twice", View())
    assert logged(tmp_path / "once") == logged(tmp_path / "twice")


def test_a_terminal_that_is_closed_saves(small, coin, tmp_path):
    """The kernel sends SIGHUP, and whatever is printed afterwards is an error of the device."""
    config = small(tmp_path / "run", evaluate={"problems": 0}, train={"steps": 100_000})
    command = script(tmp_path, config)
    process, terminal = pty.fork()
    if process == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
        os.execvp(command[0], command)
    seen = b""
    while b"step 2" not in seen:
        seen += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 130, seen
    made = len(numbers(tmp_path / "run"))
    assert [path.name for path in sorted((tmp_path / "run" / "checkpoints").glob("step-*"))][-1] == f"step-{made:06d}"


@pytest.mark.parametrize(("number", "times"), [(signal.SIGINT, 1), (signal.SIGHUP, 2)])
def test_a_signal_asks_and_only_a_second_ctrl_c_ends(number, times, capfd):
    """A closed shell sends SIGHUP, and so does the kernel afterwards; under nohup it stays ignored."""
    before = signal.getsignal(number)
    signal.signal(number, signal.default_int_handler)
    try:
        with Interrupt() as interrupt:
            for _ in range(times):
                os.kill(os.getpid(), number)
            assert interrupt.asked
            if number == signal.SIGINT:
                with pytest.raises(KeyboardInterrupt):
                    os.kill(os.getpid(), number)
        assert capfd.readouterr().err.count("will save") == 1
        assert signal.getsignal(number) is signal.default_int_handler
        signal.signal(number, signal.SIG_IGN)
        with Interrupt() as interrupt:
            os.kill(os.getpid(), number)
            assert not interrupt.asked
    finally:
        signal.signal(number, before)
