"""Whole runs of verl's main program: local Ray, two FSDP2 workers on the CPU, the tiny model.

One of them stands outside the mark `slow` and holds as much as a run can; most of a run is its start-up.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import own_method
import tokenpo
from hosts.verl.support import run
from run_views import lines
from tokenpo.core.parts.entropy import EntropyScale
from tokenpo.hosts.verl.loss import DRIFT

REPORT = run.documented()["+algorithm.tokenpo.report"]


def settings(directory: Path, steps: int, **more: Any) -> dict[str, Any]:
    """The command of docs/verl.md on two workers, as small as can be: 8 prompts x 4 responses a step, two optimiser
    steps of 16 rows."""
    if not (directory / "model").exists():
        run.model(directory / "model")
        run.problems(directory / "data", 512, 16)
    ours = {
        "actor_rollout_ref.model.path": directory / "model",
        "reward.custom_reward_function.path": run.__file__,
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


def test_every_method_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One start of Ray, two steps of each method and of one of the user's own, whose file is known to the driver only.

    What the workers report on-policy is what the objective says, at a ratio of 1; the report has every step,
    and what verl validates before the first step and after the last; the last method's temperature reaches
    the server; the checkpoint holds its learner.
    """
    (tmp_path / "late.py").write_text(own_method.FILE, encoding="utf-8")
    methods = [f"{tmp_path / 'late.py'}:late", *run.METHODS]
    assert methods[-1] == "hapo"
    monkeypatch.setenv(run.CHOSEN, ",".join(methods))
    last = 2 * len(methods)
    more = {
        "trainer.v1.trainer_mode": "tokenpo_turns",
        "+algorithm.tokenpo.method": "lopti",  # with a reference
        "actor_rollout_ref.actor.calculate_entropy": True,
        "actor_rollout_ref.rollout.agent.default_agent_loop": "tokenpo_single_turn",
        "trainer.val_before_train": True,
        "trainer.test_freq": last,
        "trainer.save_freq": last,
    }
    text = run.main_ppo(settings(tmp_path, last, **more), tmp_path, timeout=2400)
    assert "tokenpo is active in verl's trainer.\n" in run.plain(text)
    logged = lines(tmp_path / "checkpoints", run.LOG)
    assert [line["method"] for line in logged] == [name for name in methods for _ in range(2)]
    for line in logged:
        # Eight groups of four may by chance all be equally right, which leaves no advantage.
        assert line["actor/grad_norm"] > 0 or line["critic/advantages/max"] == 0, line["method"]
        assert abs(line[f"actor/{DRIFT}"]) < 1e-5, line["method"]
        if line["expected"] is not None:
            assert line["actor/pg_loss"] == pytest.approx(line["expected"], rel=1e-4, abs=1e-6), line["method"]
    assert sum(line["actor/grad_norm"] > 0 for line in logged) > last - 4
    assert sum(line["expected"] is not None for line in logged) == len(methods) - 1  # lopti makes two passes

    before, *rows = lines(tmp_path / REPORT)
    assert [before["step"], *(row["step"] for row in rows)] == list(range(last + 1)) and "reward" not in before
    accuracies = [line["eval/accuracy"] for line in (before, rows[-1])]
    assert all(accuracy is not None and 0 <= accuracy <= 1 for accuracy in accuracies)
    sampled = [line for line in lines(tmp_path, run.SEEN) if not line.get("validate")]
    tau = [(line.get("extra_args") or {}).get("tokenpo_tau") for line in sampled]
    (saved,) = (tmp_path / "checkpoints").glob(f"global_step_{last}/tokenpo.json")
    kept = json.loads(saved.read_text())
    assert kept["objective"] == str(tokenpo.method("hapo")) and set(kept["memory"][0]) == set(EntropyScale._fields)
    assert logged[-1]["tokenpo/AdaptiveTemperature/pivot"] == pytest.approx(kept["memory"][0]["pivot"])
    rule = tokenpo.method("hapo").temperature
    assert rule is not None and tau[0] is None and rule.tau in tau


@pytest.mark.slow
def test_the_reward_rises_and_a_run_resumes(tmp_path: Path) -> None:
    """25 steps of HAPO, then 5 more from its checkpoint with what it remembered."""
    run.main_ppo(settings(tmp_path, 25, **{"trainer.save_freq": 25}), tmp_path, timeout=2400)
    text = run.main_ppo(settings(tmp_path, 30), tmp_path, timeout=1800)
    assert "setting global step to 25" in text
    rewards = [row["reward"] or 0.0 for row in lines(tmp_path / REPORT)]
    assert len(rewards) == 30
    assert sum(rewards[-5:]) / 5 > sum(rewards[:5]) / 5 + 0.1


@pytest.mark.slow
def test_sessions_of_two_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each response in two outputs: verl pads and deals rows, and the workers' loss is on-policy and not zero."""
    monkeypatch.setenv(run.CHOSEN, "grpo,dapo")
    loops = tmp_path / "loops.yaml"
    loops.write_text("- name: halves\n  _target_: hosts.verl.support.outputs.Halves\n", encoding="utf-8")
    more = {
        "trainer.v1.trainer_mode": "tokenpo_turns",
        "+algorithm.tokenpo.method": "dapo",
        "actor_rollout_ref.rollout.agent.default_agent_loop": "halves",
        "actor_rollout_ref.rollout.agent.agent_loop_config_path": loops,
    }
    run.main_ppo(settings(tmp_path, 4, **more), tmp_path, timeout=1800)
    for line in lines(tmp_path / "checkpoints", run.LOG):
        assert abs(line[f"actor/{DRIFT}"]) < 1e-5 and line["actor/grad_norm"] > 0


@pytest.mark.slow
def test_a_critic_is_fitted_beside_the_policy(tmp_path: Path) -> None:
    """verl's critic gives `ppo` the values, and learns from the method's returns."""
    more = {
        **run.CRITIC,
        "critic.model.path": tmp_path / "model",
        "critic.optim.lr": 3e-3,
        "critic.ppo_micro_batch_size_per_gpu": 16,
        "+algorithm.tokenpo.method": "ppo",
        "data.train_batch_size": 16,
        "data.max_response_length": 32,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 8,
    }
    text = run.main_ppo(settings(tmp_path, 16, **more), tmp_path, timeout=1800)
    assert "tokenpo: set critic.enable=True (was None) for ppo" in run.plain(text)
    rows = lines(tmp_path / REPORT)
    assert [row["step"] for row in rows] == list(range(1, 17))
    assert all(abs(row[f"actor/{DRIFT}"] or 0) < 1e-5 for row in rows)
    assert all(row["grad_norm"] > 0 and row["critic/grad_norm"] > 0 for row in rows)
    explained = [row["critic/vf_explained_var"] for row in rows]
    # A fresh critic misleads; 0 is what a constant explains, and most of it when rewards are few.
    assert sum(explained[-6:]) / 6 > sum(explained[:2]) / 2 + 0.05


@pytest.mark.slow
def test_a_teacher_scores_every_token(tmp_path: Path) -> None:
    """For `opd` verl starts the teacher, here the policy's own model, which says of the first batch what verl's
    log-prob pass says."""
    teacher = "distillation.teacher_models.teacher_model"
    more = {
        f"{teacher}.model_path": tmp_path / "model",
        f"{teacher}.inference.tensor_model_parallel_size": 1,
        "distillation.nnodes": 1,
        "distillation.n_gpus_per_node": 1,
        "+algorithm.tokenpo.method": "opd",
        "data.max_response_length": 32,
        "actor_rollout_ref.actor.optim.lr": 3e-3,
    }
    text = run.main_ppo(settings(tmp_path, 3, **more), tmp_path, timeout=900)
    assert "tokenpo: set distillation.enabled=True (was False) for opd" in run.plain(text)
    first, *others = lines(tmp_path / REPORT)
    assert len(others) == 2 and all(abs(row[f"actor/{DRIFT}"] or 0) < 1e-5 for row in (first, *others))
    assert abs(first["teacher_kl"]) < 1e-5 < 1e-3 < abs(others[-1]["teacher_kl"])
