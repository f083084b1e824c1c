"""Whole runs of verl's main program: local Ray, two FSDP2 workers on the CPU, the tiny model.

They take about ten minutes, most of them start-up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tokenpo
from foreign_support import need

need("transfer_queue", "verl's V1 trainer is not installed: no whole run was made")
need("verl.workers.utils.padding", "verl is not installed: no whole run was made")

from adapters.verl.support import run  # noqa: E402
from adapters.verl.support.methods import CHOSEN, LOG, METHODS  # noqa: E402

import own_method  # noqa: E402
from tokenpo.engines.verl.data import write_parquet  # noqa: E402
from tokenpo.runs.read import read_run, read_trace  # noqa: E402


def _overrides(directory: Path, steps: int, *more: str) -> list[str]:
    """8 prompts x 4 responses a step on two workers, two optimiser steps of 16 rows."""
    if not (directory / "model").exists():
        run.model(directory / "model")
        write_parquet(directory / "train.parquet", "dial_sum", {}, 0, "train", 512)
        write_parquet(directory / "test.parquet", "dial_sum", {}, 0, "test", 16)
    return [
        "trainer.v1.trainer_mode=tokenpo",
        "algorithm.adv_estimator=grpo",
        f"actor_rollout_ref.model.path={directory / 'model'}",
        f"data.train_files={directory / 'train.parquet'}",
        f"data.val_files={directory / 'test.parquet'}",
        "data.train_batch_size=8",
        "data.max_prompt_length=32",
        "data.max_response_length=64",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=2",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.actor.optim.lr=3e-4",
        "trainer.n_gpus_per_node=2",
        f"trainer.total_training_steps={steps}",
        f"trainer.default_local_dir={directory / 'checkpoints'}",
        "reward.custom_reward_function.path=pkg://tokenpo.adapters.verl.data",
        *more,
    ]


def test_hapo_on_two_workers(tmp_path: Path) -> None:
    """Three steps: the plug-in says what runs, our loss is the one called at a ratio of 1, the temperature's numbers
    travel to the server from the second step on, and `tokenpo report` reads what was written."""
    report = tmp_path / "report"
    words = _overrides(
        tmp_path,
        3,
        "+algorithm.tokenpo.method=hapo",
        "+algorithm.tokenpo.options.tau=0.3",
        f"+algorithm.tokenpo.report={report}",
        "+algorithm.tokenpo.trace_every=1",
        "trainer.save_freq=3",
    )
    text = run.main_ppo(words, tmp_path, timeout=900)
    assert "tokenpo is active in verl's trainer.\n" in run.plain(text)
    assert "AdaptiveTemperature(tau=0.3" in text
    read = read_run(report)
    assert [row["step"] for row in read.metrics] == [1, 2, 3]
    assert all(abs(row["actor/tokenpo_drift_min"] or 0) < 1e-5 for row in read.metrics)
    assert all(row["grad_norm"] for row in read.metrics)
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


def test_a_method_of_the_users_own(tmp_path: Path) -> None:
    """Its file is known to the driver alone: its parts reach the workers with their code. What verl validates before
    the first step and after the last is in the report."""
    report = tmp_path / "report"
    (tmp_path / "late.py").write_text(own_method.FILE, encoding="utf-8")
    method = f"+algorithm.tokenpo.method='{tmp_path / 'late.py'}:late'"
    options = ("+algorithm.tokenpo.options.low=0.1", f"+algorithm.tokenpo.report={report}")
    validated = ("trainer.val_before_train=True", "trainer.test_freq=1")
    text = run.main_ppo(_overrides(tmp_path, 1, method, *options, *validated), tmp_path, timeout=900)
    assert "Position()" in text and "FixedBounds(low=0.1, high=0.2)" in text
    before, row = read_run(report).metrics
    assert (before["step"], row["step"]) == (0, 1) and "reward" not in before
    accuracies = [line["eval/accuracy"] for line in (before, row)]
    assert all(accuracy is not None and 0 <= accuracy <= 1 for accuracy in accuracies)
    assert row["grad_norm"] > 0 and abs(row["actor/tokenpo_drift_min"] or 0) < 1e-5


def test_every_method_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One start of Ray, two steps of each method: what the workers report on-policy is what the objective says."""
    monkeypatch.setenv(CHOSEN, ",".join(METHODS))
    words = _overrides(
        tmp_path,
        2 * len(METHODS),
        "+algorithm.tokenpo.method=lopti",  # with a reference
        "actor_rollout_ref.actor.calculate_entropy=True",
        "actor_rollout_ref.rollout.agent.default_agent_loop=tokenpo_single_turn",
    )
    words[0] = "trainer.v1.trainer_mode=tokenpo_turns"
    run.main_ppo(words, tmp_path, timeout=2400)
    told = _lines(tmp_path / "checkpoints" / LOG)
    assert [line["method"] for line in told] == [name for name in METHODS for _ in range(2)]
    for line in told:
        assert line["actor/grad_norm"] > 0, line["method"]
        if line["expected"] is not None:
            assert line["actor/pg_loss"] == pytest.approx(line["expected"], rel=1e-4, abs=1e-6), line["method"]
    assert sum(line["expected"] is not None for line in told) == len(METHODS) - 1  # lopti makes two passes


def test_the_reward_rises_and_a_run_resumes(tmp_path: Path) -> None:
    """25 steps of HAPO, then 5 more from its checkpoint with what it remembered."""
    words = ["+algorithm.tokenpo.method=hapo", f"+algorithm.tokenpo.report={tmp_path / 'report'}"]
    run.main_ppo(_overrides(tmp_path, 25, *words, "trainer.save_freq=25"), tmp_path, timeout=2400)
    text = run.main_ppo(_overrides(tmp_path, 30, *words), tmp_path, timeout=1800)
    assert "setting global step to 25" in text
    rewards = [row["reward"] or 0.0 for row in read_run(tmp_path / "report").metrics]
    assert len(rewards) == 30
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.1


def test_dynamic_sampling_ends(tmp_path: Path) -> None:
    """Two tokens hold no answer, so no group varies: the step stops with an error rather than never."""
    words = _overrides(
        tmp_path,
        2,
        "+algorithm.tokenpo.method=dapo",
        "algorithm.filter_groups.enable=True",
        "algorithm.filter_groups.max_num_gen_batches=2",
    )
    words = [word.replace("max_response_length=64", "max_response_length=2") for word in words]
    with pytest.raises(AssertionError, match=r"dynamic sampling drew \d+ prompts for one step of 8"):
        run.main_ppo(words, tmp_path, timeout=900)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
