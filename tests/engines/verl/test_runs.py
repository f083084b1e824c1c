"""Whole runs of verl's main program: local Ray, two FSDP2 workers on the CPU, the tiny model.

They take about ten minutes, most of them start-up.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tokenpo
from foreign_support import need

need("transfer_queue", "verl's V1 trainer is not installed: no whole run was made")
need("verl.workers.utils.padding", "verl is not installed: no whole run was made")

import own_method  # noqa: E402
from engines.verl.support import run  # noqa: E402
from engines.verl.support.methods import CHOSEN, LOG, METHODS  # noqa: E402
from tokenpo.engines.verl.data import write_parquet  # noqa: E402
from tokenpo.runs.read import read_run, read_trace  # noqa: E402


def _settings(directory: Path, steps: int, **more: Any) -> dict[str, Any]:
    """The command of docs/verl.md on two workers, as small as can be: 8 prompts x 4 responses a step, two optimiser
    steps of 16 rows."""
    if not (directory / "model").exists():
        run.model(directory / "model")
        write_parquet(directory / "data" / "train.parquet", "dial_sum", {}, 0, "train", 512)
        write_parquet(directory / "data" / "test.parquet", "dial_sum", {}, 0, "test", 16)
    ours = {
        "actor_rollout_ref.model.path": directory / "model",
        "data.train_batch_size": 8,
        "data.max_prompt_length": 32,
        "data.max_response_length": 64,
        "actor_rollout_ref.rollout.n": 4,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 2,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 16,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 4,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
        "actor_rollout_ref.actor.optim.lr": 3e-4,
        "trainer.n_gpus_per_node": 2,
        "trainer.total_training_steps": steps,
        "trainer.default_local_dir": directory / "checkpoints",
        "trainer.logger": "[console,file]",
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.save_freq": -1,
    }
    return {**run.documented(), **ours, **more}


def test_hapo_on_two_workers(tmp_path: Path) -> None:
    """Three steps: the plug-in says what runs, our loss is the one called at a ratio of 1, the temperature's numbers
    travel to the server from the second step on, and `tokenpo report` reads what was written."""
    more = {"+algorithm.tokenpo.options.tau": 0.3, "+algorithm.tokenpo.trace_every": 1, "trainer.save_freq": 3}
    text = run.main_ppo(_settings(tmp_path, 3, **more), tmp_path, timeout=900)
    report = tmp_path / run.documented()["+algorithm.tokenpo.report"]
    assert "tokenpo is active in verl's trainer.\n" in run.plain(text)
    assert "AdaptiveTemperature(tau=0.3" in text
    read = read_run(report)
    assert [row["step"] for row in read.metrics.lines] == [1, 2, 3]
    assert all(abs(row["actor/tokenpo_drift_min"] or 0) < 1e-5 for row in read.metrics.lines)
    assert all(row["grad_norm"] for row in read.metrics.lines)
    trace = read_trace(report)
    rollouts = [trace.load(offset) for _, offset in trace.index]
    assert {rollout.step for rollout in rollouts} == {1, 2, 3}
    assert all({"advantage", "ratio", "weight", "loss", "entropy"} <= set(rollout.terms) for rollout in rollouts)
    assert any(rollout.terms["weight"] != (1.0,) * len(rollout.tokens) for rollout in rollouts)
    seen = [json.loads(line) for line in (tmp_path / run.SEEN).read_text().splitlines()]
    assert seen[0].get("extra_args") is None
    assert seen[-1]["extra_args"]["tokenpo_tau"] == pytest.approx(0.3)
    saved = json.loads((tmp_path / "checkpoints" / "global_step_3" / "tokenpo.json").read_text())
    (numbers,) = saved["memory"]
    assert set(numbers) == {"pivot", "spread", "top", "bottom"}
    assert saved["objective"] == str(tokenpo.method("hapo", tau=0.3))


def test_a_printed_command_runs_with_a_method_of_the_users_own(tmp_path: Path) -> None:
    """A recipe, what `tokenpo launch --print` prints for it, and that alone. The method's file is known to the driver
    only: its parts reach the workers with their code. What verl validates before the first step and after the last is
    in the report."""
    run.model(tmp_path / "model")
    (tmp_path / "late.py").write_text(own_method.FILE, encoding="utf-8")
    theirs: dict[str, Any] = {}
    for key, value in {**run.CPU, "trainer.n_gpus_per_node": 2}.items():
        place = theirs
        *tables, name = key.split(".")
        for table in tables:
            place = place.setdefault(table, {})
        place[name] = value
    recipe = {
        "method": {"name": "late.py:late", "low": 0.1},
        "model": {"path": str(tmp_path / "model")},
        "rollout": {"prompts": 8, "group_size": 4, "max_new_tokens": 64},
        "train": {"steps": 1, "minibatches": 2, "lr": 3e-4},
        "evaluate": {"problems": 16, "samples": 0},
        "output": {"dir": "run"},
        "verl": theirs,
    }
    (tmp_path / "recipe.json").write_text(json.dumps(recipe), encoding="utf-8")
    launch = [sys.executable, "-m", "tokenpo.cli.main", "launch", "recipe.json", "--engine", "verl", "--print"]
    asked = subprocess.run(launch, cwd=tmp_path, env=run.environment(), capture_output=True, text=True, check=True)
    text = run.as_given(shlex.split(asked.stdout), tmp_path, timeout=900)
    assert "Position()" in text and "FixedBounds(low=0.1, high=0.2)" in text
    before, row = read_run(tmp_path / "run").metrics.lines
    assert (before["step"], row["step"]) == (0, 1) and "reward" not in before
    accuracies = [line["eval/accuracy"] for line in (before, row)]
    assert all(accuracy is not None and 0 <= accuracy <= 1 for accuracy in accuracies)
    assert row["grad_norm"] > 0 and abs(row["actor/tokenpo_drift_min"] or 0) < 1e-5


def test_every_method_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One start of Ray, two steps of each method: what the workers report on-policy is what the objective says."""
    monkeypatch.setenv(CHOSEN, ",".join(METHODS))
    more = {
        "trainer.v1.trainer_mode": "tokenpo_turns",
        "+algorithm.tokenpo.method": "lopti",  # with a reference
        "actor_rollout_ref.actor.calculate_entropy": True,
        "actor_rollout_ref.rollout.agent.default_agent_loop": "tokenpo_single_turn",
    }
    run.main_ppo(_settings(tmp_path, 2 * len(METHODS), **more), tmp_path, timeout=2400)
    told = _lines(tmp_path / "checkpoints" / LOG)
    assert [line["method"] for line in told] == [name for name in METHODS for _ in range(2)]
    for line in told:
        assert line["actor/grad_norm"] > 0, line["method"]
        if line["expected"] is not None:
            assert line["actor/pg_loss"] == pytest.approx(line["expected"], rel=1e-4, abs=1e-6), line["method"]
    assert sum(line["expected"] is not None for line in told) == len(METHODS) - 1  # lopti makes two passes


@pytest.mark.slow
def test_the_reward_rises_and_a_run_resumes(tmp_path: Path) -> None:
    """25 steps of HAPO, then 5 more from its checkpoint with what it remembered."""
    run.main_ppo(_settings(tmp_path, 25, **{"trainer.save_freq": 25}), tmp_path, timeout=2400)
    text = run.main_ppo(_settings(tmp_path, 30), tmp_path, timeout=1800)
    assert "setting global step to 25" in text
    report = tmp_path / run.documented()["+algorithm.tokenpo.report"]
    rewards = [row["reward"] or 0.0 for row in read_run(report).metrics.lines]
    assert len(rewards) == 30
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.1


def test_dynamic_sampling_ends(tmp_path: Path) -> None:
    """Two tokens hold no answer, so no group varies: the step stops with an error rather than never."""
    more = {
        "+algorithm.tokenpo.method": "dapo",
        "algorithm.filter_groups.enable": True,
        "algorithm.filter_groups.max_num_gen_batches": 2,
        "data.max_response_length": 2,
    }
    with pytest.raises(AssertionError, match=r"dynamic sampling drew \d+ prompts for one step of 8"):
        run.main_ppo(_settings(tmp_path, 2, **more), tmp_path, timeout=900)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
