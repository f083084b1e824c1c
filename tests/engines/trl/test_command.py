"""`tokenpo train --engine trl` as a person types it, and its resumption; two launches of a whole run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tokenpo import models as lm
from trl_support import environment

pytestmark = pytest.mark.usefixtures("trl_here")
SMALL = (
    "train.minibatches=2", "rollout.prompts=4", "rollout.group_size=4",
    "rollout.max_new_tokens=24", "evaluate.problems=4", "evaluate.samples=0", "output.checkpoint_every=1",
    "output.trace_every=1",
)  # fmt: skip


def tokenpo(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tokenpo", *arguments], env=environment(), capture_output=True, text=True, timeout=550
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
    return done.stdout


ALONE = """
from accelerate import PartialState
from tokenpo.engines.trl.contract import launched_alone
print("alone", launched_alone(PartialState(cpu=True).num_processes))
"""


@pytest.mark.parametrize(("processes", "alone"), [(2, True), (1, False)])
def test_a_process_that_accelerate_left_alone_is_known(processes: int, alone: bool, tmp_path: Path) -> None:
    """Without a GPU its launcher starts one process, however many are asked for."""
    (tmp_path / "script.py").write_text(ALONE)
    launch = ["accelerate.commands.launch", "--cpu", "--num_processes", str(processes), str(tmp_path / "script.py")]
    done = subprocess.run(
        [sys.executable, "-m", *launch], env=environment(), capture_output=True, text=True, timeout=200
    )
    assert f"alone {alone}" in done.stdout, done.stderr[-3000:]


def test_a_recipe_is_trained_by_trl_and_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = [part for text in SMALL for part in ("--set", text)]
    first = tokenpo("train", "quickstart", "--engine", "trl", "--method", "hapo", "--out", str(out), *settings,
                    "--set", "train.steps=1")  # fmt: skip
    assert "held-out greedy accuracy: " in first
    records = out / "trl" / "tokenpo"
    assert (records / "report.html").is_file()
    lines = [json.loads(line) for line in (records / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1]
    assert all("eval/accuracy" in line for line in lines)
    assert lines[1]["update"] == 2
    again = tokenpo("train", "--resume", str(out), "--engine", "trl", "--set", "train.steps=2", "--no-report")
    lines = [json.loads(line) for line in (records / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert (lines[2]["update"], lines[2]["accuracy"]) == (4, lines[2]["reward"])
    # The first batch after the resumption is drawn at temperatures that HAPO remembers.
    assert lines[1]["temperature_mean"] == 1.0
    assert lines[2]["temperature_mean"] != 1.0
    assert "model: " in again
    assert lm.load(out / "model").eos_ids
    config = json.loads((records / "config.json").read_text())
    assert (config["engine"], config["task"]["name"], config["method"]["name"]) == ("trl", "dial_sum", "hapo")
