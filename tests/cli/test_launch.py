"""`tokenpo launch` and `--engine`: the command that is put together, and refusals before anything starts."""

import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tokenpo.base.errors import TokenPOError
from tokenpo.cli.main import main
from tokenpo.cli.view import SilentView
from tokenpo.engines import launch
from tokenpo.engines.embedded.loop import resume
from tokenpo.engines.verl import command as verl
from tokenpo.recipe.config import load_config
from tokenpo.recipe.files import find_recipe
from tokenpo.recipe.hosts import HOSTS, VERL
from tokenpo.recipe.plan import Plan
from tokenpo.runs.directory import held

MAIN = "tokenpo.engines.trl.main"
TRL = ["quickstart", "--engine", "trl"]


def printed(capsys: pytest.CaptureFixture, *arguments: str) -> list[str]:
    assert main(["launch", *arguments, "--print"]) == 0
    return shlex.split(capsys.readouterr().out)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were started, of an engine that is installed; each ends with exit code 2."""
    started: list[list[str]] = []

    def run(command: list[str], check: bool) -> SimpleNamespace:
        started.append(command)
        return SimpleNamespace(returncode=2)

    monkeypatch.setattr(launch, "require_installed", lambda engine: None)
    monkeypatch.setattr(subprocess, "run", run)
    return started


def test_trls_launcher_on_gpus_and_on_a_cpu(capsys):
    options = ["--method", "hapo", "--set", "model.device=auto"]
    gpus = printed(capsys, *TRL, "--processes", "8", *options, "--out", "runs/a b")
    assert gpus[:3] == [sys.executable, "-m", "accelerate.commands.launch"] and "--multi_gpu" in gpus
    assert gpus[gpus.index("--num_processes") + 1] == "8"
    assert gpus[gpus.index(MAIN) - 1 :] == ["-m", MAIN, "quickstart", *options, "--out", "runs/a b"]
    one, two = printed(capsys, *TRL), printed(capsys, *TRL, "--processes", "2")
    assert "--cpu" in one and one[-1] == "quickstart"
    assert two[1:3] == ["-m", "torch.distributed.run"] and two[two.index("--nproc-per-node") + 1] == "2"


def test_a_section_of_another_engine_is_called_idle(capsys):
    recipe = ["papers/tepo_qwen2.5_7b", "--set", "evaluate.every=0"]
    assert main(["launch", *recipe, "--engine", "trl", "--print"]) == 0
    shown = capsys.readouterr()
    section = "the section [verl] (data, actor_rollout_ref, trainer) is for verl"
    assert shown.err == f"warning: {section}: this engine takes nothing from it\n"
    assert shlex.split(shown.out)[-3:] == recipe
    assert main(["launch", recipe[0], "--engine", "verl", "--set", "tinker.base_url=here", "--print"]) == 0
    assert "the section [tinker] (base_url) is for tinker" in capsys.readouterr().err
    assert main(["launch", *TRL, "--print"]) == 0 and capsys.readouterr().err == ""


def test_a_method_that_reads_the_sampler_is_told_a_setting_of_a_recipe(capsys):
    """TRL's own settings for it, use_vllm and rollout_func, are in no recipe; with the remedy it is accepted."""
    assert main(["launch", *TRL, "--method", "dppo_tv", "--print"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("tokenpo: dppo_tv needs rollout_logprob, which the TRL engine does not provide (it has ")
    assert error.endswith("(for dppo: --set method.anchor=old), or leave out --engine trl\n")
    assert "vllm" not in error and "rollout_func" not in error
    remedy = ["--set", "method.anchor=old"]
    assert printed(capsys, *TRL, "--method", "dppo_tv", *remedy)[-2:] == remedy


def test_verl_gives_its_own_command(capsys, monkeypatch):
    prepared = []
    monkeypatch.setattr(verl, "command", lambda plan: ["python3", plan.objective.name, str(plan.config.train.steps)])
    monkeypatch.setattr(verl, "prepare", prepared.append)
    options = ["quickstart", "--engine", "verl", "--method", "tepo", "--set", "train.steps=7"]
    assert printed(capsys, *options) == ["python3", "tepo", "7"]
    assert [config.method.name for config in prepared] == ["tepo"], "the command names files that must exist"


HOSTILE = (
    "a b", "it's", 'a"b', "a;b", "a&b|c", "$HOME", "${HOME}", "$(id)", "`id`", "a*b?", "#a", "a\\b", "a\\",
    "é (x)", "{a,b}", "!x",
)  # fmt: skip


@pytest.mark.parametrize("engine", ["trl", "verl"])
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_reads_back_the_words(engine, shell, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(verl, "prepare", lambda config: None)
    changes = ["--set", "model.path=a/model", "--set", "model.device=auto", "--set", "threads=none"]
    for name in HOSTILE:
        words = ["quickstart", "--engine", engine, *changes, "--out", name]
        assert main(["launch", *words, "--print"]) == 0
        script = "for word in " + capsys.readouterr().out.strip() + "; do printf '%s\\0' \"$word\"; done"
        read = subprocess.run([shell, "-c", script], capture_output=True, check=True, cwd=tmp_path).stdout
        found = read.decode().removesuffix("\0").split("\0")
        plan = Plan(load_config(find_recipe("quickstart"), overrides=changes[1::2], out=Path(name)))
        assert found == launch.command(plan, HOSTS[engine], [words[0], *words[3:]], 1), name


def test_every_run_of_verl_has_a_directory_of_its_own(monkeypatch, tmp_path):
    """Left in one directory, the second run would go on from the first one's checkpoint; `auto` asks for that."""
    prepared, started = [], []
    monkeypatch.setattr(verl, "command", lambda plan: ["python3", plan.config.output.dir or ""])
    monkeypatch.setattr(verl, "prepare", lambda config: prepared.append(config.output.dir))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "require_installed", lambda engine: None)
    monkeypatch.setattr(
        launch.subprocess, "run", lambda command, check: started.append(command[1]) or SimpleNamespace(returncode=0)
    )
    again = ["launch", "quickstart", "--engine", "verl"]
    assert main(again) == 0
    assert str(launch.train(Plan(load_config(find_recipe("quickstart"))), VERL, None, 1)) == started[-1]
    assert main(again) == 0
    assert len(set(started)) == 3 and started == prepared
    again += ["--out", started[0]]
    assert main(again) == 0  # it is still empty
    (Path(started[0]) / "data").mkdir()
    assert main(again) == 2
    assert not (Path(started[0]) / "recipe.json").exists()
    assert main([*again, "--set", "verl.trainer.resume_mode=auto"]) == 0
    assert json.loads((Path(started[0]) / "recipe.json").read_text())["output"]["dir"] == started[0]
    assert started[3:] == [started[0]] * 2


def test_every_run_of_trl_has_a_directory_of_its_own(children, monkeypatch, tmp_path):
    """Left in one directory, the second run would write over the first one's model and mix its checkpoints with it."""
    monkeypatch.chdir(tmp_path)
    first = Path("runs/quickstart-tepo-seed0")
    for _ in range(2):
        main(["launch", *TRL])
        (first / "model").mkdir(parents=True, exist_ok=True)  # what the first run left
    configs = [command[-1] for command in children]
    assert configs == [str(first / "config.json"), str(first.with_name(f"{first.name}-2") / "config.json")]
    assert main(["launch", *TRL, "--out", str(first)]) == 2
    assert len(children) == 2


@pytest.mark.parametrize("command", [["train"], ["launch"], ["launch", "--print"]])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "trl", "--processes", "0"], "tokenpo: --processes is 0, expected at least 1\n"),
        (["--engine", "trl", "--processes", "-3"], "tokenpo: --processes is -3, expected at least 1\n"),
        (["--engine", "verl", "--processes", "3"], "into the recipe's section [verl.trainer]"),
        (["--engine", "trl", "--set", "train.lrr=1"], "did you mean 'lr'"),
        (["--engine", "trl", "--set", "evaluate.every=10"], "--set evaluate.every=0"),
        (["--engine", "trl", "--method", "nthr"], "influence"),
        (["--engine", "trl", "--method", "hapoo"], "did you mean 'hapo'"),
        (["--engine", "trl", "--set", "rollout.prompts=3", "--set", "train.minibatches=5"], "divided evenly"),
    ],
)
def test_a_mistake_is_found_before_anything_starts(command, options, message, children, capsys, tmp_path):
    out = tmp_path / "run"
    assert main([*command, "quickstart", *options, "--out", str(out)]) == 2
    shown = capsys.readouterr()
    assert message in shown.err and shown.out == "" and not children and not out.exists()


def test_the_embedded_engine_is_one_process(capsys):
    assert main(["train", "quickstart", "--processes", "3"]) == 2
    error = capsys.readouterr().err
    assert "--processes 3 means nothing to" in error and "add --engine trl" in error


@pytest.mark.parametrize("engine", ["trl", "verl"])
@pytest.mark.parametrize("command", ["launch", "train"])
def test_a_missing_engine_comes_with_its_remedy(command, engine, capsys, monkeypatch, tmp_path):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == engine else find(name))
    assert main([command, "quickstart", "--engine", engine, "--out", str(tmp_path / "run")]) == 2
    assert f"pip install 'tokenpo[{engine}]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_run_of_another_engine_is_not_resumed(children, capsys, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert main(["train", "--resume", str(tmp_path), "--engine", "trl"]) == 2
    assert "holds no run of the trl engine but one of the embedded engine" in capsys.readouterr().err
    for left, remedy in (("trl", "resume it with --engine trl"), ("trace-parts", "--engine verl")):
        run = tmp_path / f"of-{left}"
        (run / left).mkdir(parents=True)
        (run / "config.json").write_text("{}")
        assert main(["train", "--resume", str(run)]) == 2
        assert remedy in capsys.readouterr().err
        with pytest.raises(TokenPOError, match=remedy):
            resume(run, SilentView())
        assert {path.name for path in run.iterdir()} == {left, "config.json"}


@pytest.mark.parametrize("engine", ["embedded", "trl"])
def test_a_model_is_not_resumed_but_its_run(engine, children, capsys, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "qwen3", "vocab_size": 9}')
    assert main(["train", "--resume", str(tmp_path / "model"), "--engine", engine]) == 2
    message = f"tokenpo: {tmp_path / 'model'} is a model, not a run: give {tmp_path}\n"
    assert capsys.readouterr().err == message and not children


def test_a_run_that_never_began_is_in_nobodys_way(children, capsys, monkeypatch, tmp_path):
    """As a killed launcher leaves it."""
    out = tmp_path / "run"
    fresh = ["train", *TRL, "--out", str(out)]
    with monkeypatch.context() as killed:
        killed.setattr(subprocess, "run", lambda *_, **__: os.kill(os.getpid(), signal.SIGINT))
        assert main(fresh) == 130
    assert main(["train", "--resume", str(out), "--engine", "trl"]) == 2
    assert f"never began: start it with tokenpo train {out / 'config.json'} --engine trl" in capsys.readouterr().err
    assert main(["train", str(out / "config.json"), "--engine", "trl"]) == 2
    assert "--quiet" in children[0]  # or accelerate's traceback would stand below the child's sentence
    assert children[0][-1] == str(out / "config.json") and "exit code 2" in capsys.readouterr().err
    assert len(children) == 1 and not out.exists()


@pytest.mark.parametrize(("engine", "records"), [("trl", "trl/tokenpo"), ("verl", "")])
@pytest.mark.parametrize("step", [0, 1])
def test_an_engine_that_breaks_before_its_first_step_leaves_nothing(engine, records, step, monkeypatch, tmp_path):
    """A broken chat template, say; what was evaluated before is no step. After one, everything stays."""
    out = tmp_path / "run"

    def broken(command: list[str], check: bool) -> SimpleNamespace:
        (out / records).mkdir(parents=True, exist_ok=True)
        (out / records / "metrics.jsonl").write_text(f'{{"step": 0}}\n{{"step": {step}}}\n')
        (out / "data").mkdir()
        return SimpleNamespace(returncode=1)

    monkeypatch.setattr(launch, "require_installed", lambda engine: None)
    monkeypatch.setattr(subprocess, "run", broken)
    monkeypatch.setattr(verl, "command", lambda plan: ["python3"])
    monkeypatch.setattr(verl, "prepare", lambda config: None)
    assert main(["train", "quickstart", "--engine", engine, "--out", str(out)]) == 2
    assert out.exists() == (step > 0) == (out / "data").exists()


def test_a_run_of_verl_that_goes_on_with_other_settings_says_so(children, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(verl, "command", lambda plan: ["python3"])
    monkeypatch.setattr(verl, "prepare", lambda config: None)
    (tmp_path / "checkpoints").mkdir()
    auto = ["train", "quickstart", "--engine", "verl", "--set", "verl.trainer.resume_mode=auto", "--out", str(tmp_path)]
    assert main(auto) == 2 and "says otherwise" not in capsys.readouterr().err
    assert main([*auto, "--set", "train.lr=0.5"]) == 2
    error = capsys.readouterr().err
    assert f"warning: {tmp_path / 'recipe.json'} says otherwise (train.lr: " in error and "-> 0.5) and is writ" in error


def test_what_lies_in_the_directory_is_not_written_over(children, capsys, tmp_path):
    command = ["train", *TRL, "--out", str(tmp_path)]
    with held(tmp_path):
        assert main(command) == 2
    assert "is being trained by another process" in capsys.readouterr().err
    assert not (tmp_path / "config.json").exists()
    (tmp_path / "config.json").write_text('{"mine": 1}')
    assert main(command) == 2
    assert "is not empty" in capsys.readouterr().err
    assert not children and (tmp_path / "config.json").read_text() == '{"mine": 1}'


@pytest.mark.parametrize("engine", [host.name for host in HOSTS.values() if host.commanded])
def test_no_engine_is_given_weights_that_are_pickled(engine, children, capsys, tmp_path):
    """Their own loaders would take them."""
    model, out = tmp_path / "model", tmp_path / "run"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "pytorch_model.bin").write_bytes(b"")
    settings = ["--set", f"model.path={model}", "--out", str(out)]
    assert main(["launch", "quickstart", "--engine", engine, *settings]) == 2
    assert "are pickled (pytorch_model.bin)" in capsys.readouterr().err
    assert not children and not out.exists()
