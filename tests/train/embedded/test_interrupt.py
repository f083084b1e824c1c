"""Ctrl-C saves, says how to go on, and what goes on is the same run."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from run_views import numbers
from tokenpo.base.interrupt import Interrupt
from tokenpo.cli.main import main
from tokenpo.cli.view import SilentView
from tokenpo.train.recipe.plan import Plan
from tokenpo.train.run.directory import describe
from tokenpo.train.run.embedded.loop import resume, train

from .test_resume import logged

SCRIPT = """
import importlib.util, os, signal, sys
import torch
import tokenpo.train.recipe.plan as plan
from tokenpo.cli.main import main

sys.path.insert(0, os.path.abspath(os.path.join(sys.argv[1], *[".."] * 3)))  # as tests/conftest.py does
spec = importlib.util.spec_from_file_location("fixtures", sys.argv[1])
fixtures = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fixtures)

class Impatient(fixtures.Coin):
    batches = 0

    def score(self, *arguments):
        self.batches += 1
        if self.batches == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return super().score(*arguments)

torch.set_num_threads(1)
plan.make_task = lambda name, options, seed: Impatient()
sys.exit(main(["train", sys.argv[2]]))
"""


def script(folder: Path, config, text: str = SCRIPT) -> list[str]:
    """The command that trains this config by the script."""
    recipe = folder / "described"
    recipe.mkdir()
    describe(recipe, Plan(config))
    return [sys.executable, "-c", text, str(Path(__file__).with_name("conftest.py")), str(recipe / "recipe.toml")]


def test_an_interrupted_run_resumes_bit_for_bit(small, coin, tmp_path, capsys, monkeypatch):
    straight = small(tmp_path / "once", evaluate={"problems": 0}, method={"name": "hapo"})
    train(straight, SilentView())
    config = small(tmp_path / "twice", evaluate={"problems": 0}, method={"name": "hapo"})
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


def test_ctrl_c_that_takes_the_reader_of_the_output_too_saves(small, coin, tmp_path):
    """As in `tokenpo train ... 2>&1 | tee log`: nobody reads what the run says of the interrupt, or afterwards."""
    config = small(tmp_path / "run", evaluate={"problems": 0})
    command = script(tmp_path, config)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    process.stdout.close()
    assert process.wait(timeout=120) == 130
    assert (tmp_path / "run" / "checkpoints" / "step-000002").is_dir()
    assert len(numbers(tmp_path / "run")) == 2


def test_a_terminal_that_is_closed_saves(small, coin, tmp_path):
    """The kernel sends SIGHUP, and whatever is printed afterwards is an error of the device."""
    config = small(tmp_path / "run", evaluate={"problems": 0}, train={"steps": 100_000})
    command = script(tmp_path, config, SCRIPT.replace("self.batches == 3", "False"))
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


@pytest.fixture
def heard():
    """SIGHUP is not ignored, as it is where the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("heard")
def test_a_hang_up_comes_twice_and_ends_nothing(capfd):
    before = signal.getsignal(signal.SIGHUP)
    with Interrupt() as interrupt:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGHUP)
        assert interrupt.asked
    assert capfd.readouterr().err.count("will save") == 1
    assert signal.getsignal(signal.SIGHUP) is before


def test_what_was_to_be_ignored_is_ignored():
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupt() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupt.asked
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_interrupt_in_the_first_batch_leaves_one_line_of_the_first_evaluation(small, coin, tmp_path, monkeypatch):
    kind = type(coin)

    class Impatient(kind):
        def problems(self, split, start, count):
            if split == "train" and not self.seen_train:
                self.seen_train = True
                os.kill(os.getpid(), signal.SIGINT)
            return super().problems(split, start, count)

        seen_train = False

    monkeypatch.setattr("tokenpo.train.recipe.plan.make_task", lambda *_: Impatient())
    outcome = train(small(tmp_path / "run"), SilentView())
    assert (outcome.steps, outcome.finished) == (0, False)
    monkeypatch.setattr("tokenpo.train.recipe.plan.make_task", lambda *_: coin)
    assert resume(tmp_path / "run", SilentView()).finished
    assert [line["step"] for line in numbers(tmp_path / "run")] == [0, 1, 2, 3, 4]


def test_the_first_signal_asks_and_the_second_one_ends(capfd):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.asked
        assert "will save" in capfd.readouterr().err
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_report_is_written_names_the_command(number, tmp_path, monkeypatch, capsys):
    from tokenpo.cli.train import _report

    monkeypatch.setattr("tokenpo.lab.report.page.write_report", lambda run: os.kill(os.getpid(), number))
    before = signal.getsignal(signal.SIGTERM)
    assert _report(tmp_path / "run") == 130
    assert capsys.readouterr().err.endswith(f"tokenpo report {tmp_path / 'run'}\n")
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_interrupt_while_python_ends_is_no_traceback():
    code = "import atexit, os, signal, sys\nfrom tokenpo.cli.main import main\n"
    code += "atexit.register(os.kill, os.getpid(), signal.SIGINT)\nsys.argv[1:] = ['--version']\nsys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
