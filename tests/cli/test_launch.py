"""`tokenpo launch` and `--engine`: the command that is put together, and what is said where an engine is missing."""

from __future__ import annotations

import importlib.util
import json
import shlex
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
from tokenpo.runs.directory import held

MAIN = "tokenpo.engines.trl.main"


def printed(capsys: pytest.CaptureFixture, *arguments: str) -> list[str]:
    assert main(["launch", *arguments, "--print"]) == 0
    return shlex.split(capsys.readouterr().out)


def test_trl_on_gpus_is_accelerates_launcher(capsys: pytest.CaptureFixture) -> None:
    given = ["quickstart", "--engine", "trl", "--processes", "8", "--method", "hapo", "--set", "model.device=auto"]
    command = printed(capsys, *given, "--out", "runs/a b")
    assert command[:3] == [sys.executable, "-m", "accelerate.commands.launch"]
    assert command[command.index("--num_processes") + 1] == "8"
    assert "--multi_gpu" in command
    told = ["quickstart", "--method", "hapo", "--set", "model.device=auto", "--out", "runs/a b"]
    assert command[command.index(MAIN) - 1 :] == ["-m", MAIN, *told]


def test_trl_on_a_cpu(capsys: pytest.CaptureFixture) -> None:
    one = printed(capsys, "quickstart", "--engine", "trl")
    assert "--cpu" in one
    assert one[-1] == "quickstart"
    two = printed(capsys, "quickstart", "--engine", "trl", "--processes", "2")
    assert two[1:3] == ["-m", "torch.distributed.run"]
    assert two[two.index("--nproc-per-node") + 1] == "2"


def test_a_section_of_another_engine_is_said_to_be_idle(capsys: pytest.CaptureFixture) -> None:
    recipe = "papers/tepo_qwen2.5_7b"
    assert main(["launch", recipe, "--engine", "trl", "--set", "evaluate.every=0", "--print"]) == 0
    said = capsys.readouterr()
    assert said.err == (
        "warning: the section [verl] (data, actor_rollout_ref, trainer) is for verl: this engine takes nothing from "
        "it\n"
    )
    assert shlex.split(said.out)[-3:] == [recipe, "--set", "evaluate.every=0"]
    assert main(["launch", recipe, "--engine", "verl", "--set", "tinker.base_url=here", "--print"]) == 0
    assert "the section [tinker] (base_url) is for tinker" in capsys.readouterr().err
    assert main(["launch", "quickstart", "--engine", "trl", "--print"]) == 0
    assert capsys.readouterr().err == ""


def test_a_method_that_reads_the_sampler_is_told_what_a_recipe_can_set(capsys: pytest.CaptureFixture) -> None:
    """TRL's own settings for it, use_vllm and rollout_func, are in no recipe; with the remedy it is accepted."""
    given = ["quickstart", "--engine", "trl", "--method", "dppo_tv"]
    assert main(["launch", *given, "--print"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("tokenpo: dppo_tv needs rollout_logprob, which the TRL engine does not provide (it has ")
    assert said.endswith("(for dppo: --set method.anchor=old), or leave out --engine trl\n")
    assert "vllm" not in said and "rollout_func" not in said
    assert printed(capsys, *given, "--set", "method.anchor=old")[-2:] == ["--set", "method.anchor=old"]


def test_verl_says_its_own_command(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = []
    monkeypatch.setattr(verl, "command", lambda config: ["python3", config.method.name, str(config.train.steps)])
    monkeypatch.setattr(verl, "prepare", prepared.append)
    given = ["quickstart", "--engine", "verl", "--method", "tepo", "--set", "train.steps=7"]
    assert printed(capsys, *given) == ["python3", "tepo", "7"]
    assert [config.method.name for config in prepared] == ["tepo"], "the command names files that must be there"


def test_every_run_of_verl_has_a_directory_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Left in one directory, the second run would go on from the first one's checkpoint; `auto` asks for that."""
    prepared: list[str] = []
    monkeypatch.setattr(verl, "command", lambda config: ["python3", config.output.dir or ""])
    monkeypatch.setattr(verl, "prepare", lambda config: prepared.append(config.output.dir))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "require_installed", lambda engine: None)
    started: list[str] = []
    monkeypatch.setattr(
        launch.subprocess, "run", lambda command, check: started.append(command[1]) or SimpleNamespace(returncode=0)
    )
    config = load_config(find_recipe("quickstart"))
    assert main(["launch", "quickstart", "--engine", "verl"]) == 0
    assert str(launch.train(config, VERL, None, 1)) == started[-1]
    assert main(["launch", "quickstart", "--engine", "verl"]) == 0
    assert len(set(started)) == 3 and started == prepared
    assert main(["launch", "quickstart", "--engine", "verl", "--out", started[0]]) == 0  # it is still empty
    (Path(started[0]) / "data").mkdir()
    again = ["launch", "quickstart", "--engine", "verl", "--out", started[0]]
    assert main(again) == 2
    assert not (Path(started[0]) / "recipe.json").exists()
    assert main([*again, "--set", "verl.trainer.resume_mode=auto"]) == 0
    assert json.loads((Path(started[0]) / "recipe.json").read_text())["output"]["dir"] == started[0]
    assert started[3:] == [started[0]] * 2


def test_every_run_of_trl_has_a_directory_of_its_own(
    children: list, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Left in one directory, the second run would write over the first one's model and mix its checkpoints with it."""
    monkeypatch.chdir(tmp_path)
    first = Path("runs/quickstart-tepo-seed0")
    for _ in range(2):
        main(["launch", "quickstart", "--engine", "trl"])
        (first / "model").mkdir(parents=True, exist_ok=True)  # what the first run left
    configs = [command[-1] for command in children]
    assert configs == [str(first / "config.json"), str(first.with_name(f"{first.name}-2") / "config.json")]
    assert main(["launch", "quickstart", "--engine", "trl", "--out", str(first)]) == 2
    assert len(children) == 2


@pytest.mark.parametrize("processes", ["0", "-3"])
@pytest.mark.parametrize("command", [["train"], ["launch", "--print"]])
def test_fewer_than_one_process_is_refused(command: list[str], processes: str, capsys: pytest.CaptureFixture) -> None:
    assert main([*command, "quickstart", "--engine", "trl", "--processes", processes]) == 2
    assert capsys.readouterr() == ("", f"tokenpo: --processes is {processes}, expected at least 1\n")


def test_a_mistake_in_the_recipe_is_found_before_anything_starts(capsys: pytest.CaptureFixture) -> None:
    assert main(["launch", "quickstart", "--engine", "trl", "--set", "train.lrr=1", "--print"]) == 2
    assert "did you mean 'lr'" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["launch", "quickstart"], ["train", "quickstart"]])
def test_a_missing_engine_is_said_with_its_remedy(
    command: list[str], capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "trl" else find(name))
    assert main([*command, "--engine", "trl", "--out", str(tmp_path / "run")]) == 2
    assert "pip install 'tokenpo[trl]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_missing_verl_is_said_with_its_remedy(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "verl" else find(name))
    assert main(["launch", "quickstart", "--engine", "verl", "--out", str(tmp_path / "run")]) == 2
    assert "pip install 'tokenpo[verl]'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        (["train", "quickstart"], "add --engine trl"),
        (["train", "quickstart", "--engine", "verl"], "[verl.trainer]"),
        (["launch", "quickstart", "--engine", "verl", "--print"], "[verl.trainer]"),
    ],
)
def test_several_processes_are_trls_alone(command: list[str], remedy: str, capsys: pytest.CaptureFixture) -> None:
    assert main([*command, "--processes", "3"]) == 2
    said = capsys.readouterr().err
    assert "--processes 3 means nothing to" in said and remedy in said


@pytest.mark.parametrize("count", ["0", "-1"])
@pytest.mark.parametrize("command", [["launch", "quickstart", "--print"], ["train", "quickstart"]])
def test_there_is_one_process_at_least(command: list[str], count: str, capsys: pytest.CaptureFixture) -> None:
    assert main([*command, "--engine", "trl", "--processes", count]) == 2
    assert capsys.readouterr().err == f"tokenpo: --processes is {count}, expected at least 1\n"


def test_a_run_of_another_engine_is_not_resumed(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(launch, "require_installed", lambda engine: None)
    (tmp_path / "config.json").write_text("{}")
    assert main(["train", "--resume", str(tmp_path), "--engine", "trl"]) == 2
    assert "holds no run of the trl engine but one of the embedded engine" in capsys.readouterr().err


@pytest.mark.parametrize(("left", "remedy"), [("trl", "resume it with --engine trl"), ("trace-parts", "--engine verl")])
def test_the_embedded_engine_does_not_begin_a_foreign_run_anew(
    left: str, remedy: str, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / left).mkdir()
    (tmp_path / "config.json").write_text("{}")
    assert main(["train", "--resume", str(tmp_path)]) == 2
    assert remedy in capsys.readouterr().err
    with pytest.raises(TokenPOError, match=remedy):
        resume(tmp_path, SilentView())
    assert {path.name for path in tmp_path.iterdir()} == {left, "config.json"}


def test_a_run_that_fails_is_said(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = []

    def run(command: list[str], check: bool) -> SimpleNamespace:
        started.append(command)
        return SimpleNamespace(returncode=3)

    monkeypatch.setattr(launch, "require_installed", lambda engine: None)
    monkeypatch.setattr(subprocess, "run", run)
    out = tmp_path / "run"
    assert main(["train", "quickstart", "--engine", "trl", "--out", str(out), "--set", "train.steps=2"]) == 2
    assert "exit code 3" in capsys.readouterr().err
    assert started[0][-1] == str(out / "config.json")
    assert '"steps": 2' in (out / "config.json").read_text()


@pytest.mark.parametrize("engine", ["embedded", "trl"])
def test_a_model_is_not_resumed_but_the_run_that_it_is_of(
    engine: str, children: list, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "qwen3", "vocab_size": 9}')
    assert main(["train", "--resume", str(tmp_path / "model"), "--engine", engine]) == 2
    said = f"tokenpo: {tmp_path / 'model'} is a model, not a run: give {tmp_path}\n"
    assert capsys.readouterr().err == said and not children


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that were started; each ends with the exit code of a refusal."""
    started: list[list[str]] = []

    def run(command: list[str], check: bool) -> SimpleNamespace:
        started.append(command)
        return SimpleNamespace(returncode=2)

    monkeypatch.setattr(launch, "require_installed", lambda engine: None)
    monkeypatch.setattr(subprocess, "run", run)
    return started


@pytest.mark.parametrize("command", ["train", "launch"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--set", "evaluate.every=10"], "--set evaluate.every=0"),
        (["--method", "nthr"], "influence"),
        (["--method", "hapoo"], "did you mean 'hapo'"),
        (["--set", "rollout.prompts=3", "--set", "train.minibatches=5"], "divided evenly"),
    ],
)
def test_what_trl_cannot_do_is_said_before_a_directory_is_made(
    command: str, given: list[str], said: str, children: list, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert main([command, "quickstart", "--engine", "trl", "--out", str(out), *given]) == 2
    assert said in capsys.readouterr().err
    assert not children and not out.exists()


def test_a_run_that_never_began_is_in_nobodys_way(
    children: list[list[str]], capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    fresh = ["train", "quickstart", "--engine", "trl", "--out", str(out)]
    assert main(fresh) == 2
    assert "--quiet" in children[0]  # or accelerate's traceback would stand below the child's sentence
    assert main(["train", "--resume", str(out), "--engine", "trl"]) == 2
    assert f"never began: start it with tokenpo train {out / 'config.json'} --engine trl" in capsys.readouterr().err
    for again in (["train", str(out / "config.json"), "--engine", "trl"], [*fresh, "--set", "train.steps=3"]):
        assert main(again) == 2
        assert "exit code 2" in capsys.readouterr().err
    assert len(children) == 3
    assert '"steps": 3' in (out / "config.json").read_text()


def test_a_config_that_is_no_runs_is_not_written_over(
    children: list[list[str]], capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text('{"mine": 1}')
    assert main(["train", "quickstart", "--engine", "trl", "--out", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err
    assert not children and (tmp_path / "config.json").read_text() == '{"mine": 1}'


def test_a_run_of_trl_is_held_while_it_is_trained(
    children: list[list[str]], capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    with held(tmp_path):
        assert main(["train", "quickstart", "--engine", "trl", "--out", str(tmp_path)]) == 2
    assert "is being trained by another process" in capsys.readouterr().err
    assert not children and not (tmp_path / "config.json").exists()


def test_the_command_line_does_not_import_an_engine() -> None:
    code = (
        "import sys; from tokenpo.cli import main; main.parser(); "
        "print(*(m for m in ('trl', 'verl') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("engine", [host.name for host in HOSTS.values() if host.commanded])
def test_no_engine_is_given_weights_that_are_pickled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, engine: str
) -> None:
    """Their own loaders would take them."""
    monkeypatch.setattr(launch, "require_installed", lambda name: None)
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "pytorch_model.bin").write_bytes(b"")
    given = ["launch", "quickstart", "--engine", engine, "--set", f"model.path={model}", "--out", str(tmp_path / "run")]
    assert main(given) == 2
    assert "are pickled (pytorch_model.bin)" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
