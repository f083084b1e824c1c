"""`tokenpo train` and `tokenpo compare --engine trl` as a person types them, and the resumption of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tokenpo import models as lm
from trl_support import run_python

pytestmark = pytest.mark.usefixtures("trl_here")
SMALL = ["rollout.prompts=4", "rollout.max_new_tokens=24", "evaluate.problems=4", "evaluate.samples=0"]
ALONE = """
from accelerate import PartialState
from tokenpo.engines.trl.contract import launched_alone
print("alone", launched_alone(PartialState(cpu=True).num_processes))
"""


def tokenpo(*arguments: object, changes: list[str]) -> str:
    words = [word for change in changes for word in ("--set", change)]
    return run_python("-m", "tokenpo", *map(str, arguments), *words).stdout


def lines(records: Path) -> list[dict]:
    return [json.loads(line) for line in (records / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("processes", "alone"), [(2, True), (1, False)])
def test_a_process_that_accelerate_left_alone_is_known(processes: int, alone: bool, tmp_path: Path) -> None:
    """Without a GPU its launcher starts one process, however many are asked for."""
    (tmp_path / "script.py").write_text(ALONE)
    launch = ["accelerate.commands.launch", "--cpu", "--num_processes", str(processes), str(tmp_path / "script.py")]
    assert f"alone {alone}" in run_python("-m", *launch, timeout=200).stdout


def test_a_recipe_is_trained_by_trl_and_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    records = out / "trl" / "tokenpo"
    changes = ["train.minibatches=2", "rollout.group_size=4", "output.checkpoint_every=1", "output.trace_every=1"]
    changes += ["train.kl_target=0.004"]
    first = tokenpo(
        "train", "quickstart", "--engine", "trl", "--method", "hapo", "--out", out,
        changes=[*SMALL, *changes, "train.steps=1"],
    )  # fmt: skip
    assert "held-out greedy accuracy: " in first
    assert (records / "report.html").is_file()
    assert [line["step"] for line in lines(records)] == [0, 1]
    assert all("eval/accuracy" in line for line in lines(records))
    again = tokenpo("train", "--resume", out, "--engine", "trl", "--no-report", changes=["train.steps=2"])
    before, made, last = lines(records)
    assert [before["step"], made["step"], last["step"]] == [0, 1, 2]
    assert (made["update"], last["update"], last["accuracy"]) == (2, 4, last["reward"])
    # The first batch after the resumption is drawn at temperatures that HAPO remembers.
    assert made["temperature_mean"] == 1.0 != last["temperature_mean"]
    assert made["kl_rate"] == made["lr"] / 2e-4 == 0.125  # of its recipe's learning rate
    assert "model: " in again
    assert lm.load(out / "model").eos_ids
    config = json.loads((records / "config.json").read_text())
    assert (config["engine"], config["task"]["name"], config["method"]["name"]) == ("trl", "dial_sum", "hapo")


@pytest.mark.slow
def test_two_methods_and_two_seeds_are_compared(tmp_path: Path) -> None:
    out, words = tmp_path / "out", ["--methods", "grpo,dapo", "--seeds", "2", "--jobs", "1", "--metrics", "accuracy"]
    changes = [*SMALL, "train.steps=2", "train.minibatch_by=rows"]
    tokenpo("compare", "quickstart", "--engine", "trl", *words, "--out", out, changes=changes)
    assert "accuracy" in (out / "compare.json").read_text(encoding="utf-8")
    runs = sorted(path.name for path in out.glob("*-seed*"))
    assert runs == ["dapo-seed0", "dapo-seed1", "grpo-seed0", "grpo-seed1"]
    assert all((out / run / "trl" / "tokenpo" / "metrics.jsonl").is_file() for run in runs)
