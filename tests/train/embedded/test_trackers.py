"""Trackers get what metrics.jsonl got, once, under the documented names; none of them can end a run."""

import json
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from run_views import Watch, lines
from tokenpo.base.errors import Unsupported
from tokenpo.train.recipe.config import parse_config
from tokenpo.train.run.loop import resume, train
from tokenpo.train.run.step import View
from tokenpo.train.run.trackers import Trackers, send_report


class FakeRun:
    """What a tracker's `init` returns: records, or fails at one step."""

    def __init__(self, service: "Fake", arguments: dict[str, Any]) -> None:
        self.service, self.arguments = service, arguments
        self.lines: dict[int, dict[str, float]] = {}
        self.closed = False

    def log_artifact(self, path: str, name: str, type: str) -> None:
        if self.service.fails_at == "artifact":
            raise ConnectionError("no route\nto host")
        self.artifact = Path(path).read_text(), name, type

    def finish(self) -> None:
        self.closed = True
        if self.service.fails_at == "close":
            raise OSError("the disk is full")

    def log(self, data: dict[str, float], step: int, commit: bool | None = None) -> None:
        if step == self.service.fails_at:
            raise ConnectionError("no route\nto host")
        assert step not in self.lines, "sent twice"
        self.lines[step] = data


class Fake(ModuleType):
    """A tracker package with the few names that are used of it."""

    class Settings:
        def __init__(self, console: str) -> None:
            self.console = console

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None, origin="fake")
        self.runs: list[FakeRun] = []
        self.fails_at: int | str | None = None

    def init(self, **arguments: Any) -> FakeRun:
        if self.fails_at == "init":
            raise RuntimeError("No API key configured.")
        self.runs.append(FakeRun(self, arguments))
        return self.runs[-1]

    def lines(self) -> list[dict[int, dict[str, float]]]:
        return [run.lines for run in self.runs]


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Fake:
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    return _installed(monkeypatch, "wandb")


@pytest.fixture
def trackio(monkeypatch: pytest.MonkeyPatch) -> Fake:
    return _installed(monkeypatch, "trackio")


def _installed(monkeypatch: pytest.MonkeyPatch, name: str) -> Fake:
    module = Fake(name)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def config(*names: str, project: str | None = None) -> Any:
    return parse_config({"output": {"track": list(names), "project": project}}, "test")


def record(directory: Path, steps: int) -> list[dict]:
    """A metrics.jsonl of `steps` + 1 lines."""
    lines = [{"step": step, "reward": step / 4, "kl": None if step == 1 else 0.5} for step in range(steps + 1)]
    (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines


def expected(line: dict) -> dict[str, float]:
    return {name: x for name, x in line.items() if name != "step" and x is not None}


def test_a_crashed_and_resumed_run_is_one_run_of_every_tracker(small, coin, tmp_path, wandb, trackio):
    """Wandb fails at step 2, then the run crashes at 3; its checkpoint is that of step 2."""
    output = {"track": ["trackio", "wandb"], "checkpoint_every": 2, "keep": 1, "project": "p"}
    wandb.fails_at = 2
    view = Watch(crash=3)
    with pytest.raises(RuntimeError, match="power cut"):
        train(small(tmp_path / "run", output=output), view)
    warned = [line for line in view.lines if "wandb" in line]
    assert len(warned) == 1
    assert warned[0].startswith("warning: wandb failed at step 2 (ConnectionError: no route to host) and is off")
    assert [sorted(sent) for sent in wandb.lines() + trackio.lines()] == [[0, 1], [0, 1, 2, 3]]
    assert [trackio.runs[0].closed, wandb.runs[0].closed] == [True, False]

    wandb.fails_at = None
    resume(tmp_path / "run", View())
    metrics = lines(tmp_path / "run")
    assert [sorted(sent) for sent in wandb.lines() + trackio.lines()] == [[0, 1], [2, 3, 4], [0, 1, 2, 3], [4]]
    whole = {step: line for sent in wandb.lines() for step, line in sent.items()}
    assert whole == {line["step"]: expected(line) for line in metrics}
    assert "length" in whole[1] and "eval/accuracy" in whole[0] and "kl" in whole[1]

    first, second = (run.arguments for run in wandb.runs)
    assert first == {**second, "config": first["config"], "settings": first["settings"]}
    assert (first["project"], first["name"], first["resume"]) == ("p", "run", "allow")
    assert first["dir"] == str(tmp_path / "run") and first["settings"].console == "off"
    assert first["config"]["method"]["name"] == "grpo"
    assert trackio.runs[0].arguments["name"] == trackio.runs[1].arguments["name"] == f"run-{first['id']}"


def test_a_tracker_that_is_new_gets_the_whole_course(tmp_path, wandb, trackio):
    first, *rest = record(tmp_path, 4)
    Trackers(tmp_path, config("trackio"), pytest.fail).close()
    trackers = Trackers(tmp_path, config("trackio", "wandb"), pytest.fail)
    trackers.send({"step": 5, "reward": float("inf"), "kl": float("nan"), "lr": 1e-3})
    trackers.close()
    course = {line["step"]: expected(line) for line in [first, *rest]} | {5: {"lr": 1e-3}}
    assert wandb.lines() == [course]
    assert trackio.lines()[0] | trackio.lines()[1] == course
    assert wandb.runs[0].closed
    saved = json.loads((tmp_path / "trackers.json").read_text())
    assert saved == {"run": wandb.runs[0].arguments["id"], "sent": {"trackio": 5, "wandb": 5}}


def test_what_cannot_begin_ends_the_command_and_leaves_the_directory_free(small, coin, tmp_path, wandb, trackio):
    wandb.fails_at = "init"
    settings = small(tmp_path / "run", output={"track": ["trackio", "wandb"]}, train={"steps": 1})
    with pytest.raises(Unsupported, match=r"wandb could not begin \(RuntimeError: No API key.*WANDB_MODE=offline"):
        train(settings, View())
    assert trackio.runs[0].closed
    wandb.fails_at = None
    assert train(settings, View()).finished


def test_the_report_goes_to_the_runs_own_trackers(tmp_path, wandb, trackio):
    settings, said = config("wandb", "trackio"), []
    Trackers(tmp_path, settings, pytest.fail).close()
    (tmp_path / "report.html").write_text("page")
    wandb.fails_at = "artifact"
    send_report(tmp_path, settings, tmp_path / "report.html", said.append)
    assert said == [
        "warning: wandb did not take the report (ConnectionError: no route to host); it is "
        + str(tmp_path / "report.html")
    ]
    wandb.fails_at = None
    send_report(tmp_path, settings, tmp_path / "report.html", pytest.fail)
    identity = wandb.runs[0].arguments["id"]
    assert {run.arguments["id"] for run in wandb.runs} == {identity}
    assert wandb.runs[-1].artifact == trackio.runs[-1].artifact == ("page", f"report-{identity}", "report")
    assert wandb.runs[-1].closed and trackio.runs[-1].closed
