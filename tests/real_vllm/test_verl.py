"""verl's main program with vLLM as its rollout server: local Ray, one FSDP2 worker, weights through shared memory."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hosts.verl.support import run
from hosts.verl.support.run import CHOSEN, LOG
from vllm_support import cpu

# As small as can be: 8 prompts x 4 responses a step.
SETTINGS: dict[str, Any] = {
    "data.train_batch_size": 8,
    "data.max_prompt_length": 32,
    "data.max_response_length": 64,
    "trainer.n_gpus_per_node": 1,
    "trainer.logger": "[console]",
    "trainer.val_before_train": False,
    "trainer.test_freq": -1,
    "trainer.save_freq": -1,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 4,
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.actor.optim.lr": 1e-3,
    "actor_rollout_ref.rollout.n": 4,
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 16,
    "actor_rollout_ref.rollout.calculate_log_probs": True,
    # What vLLM wants on a CPU.
    "actor_rollout_ref.rollout.dtype": "float32",
    "actor_rollout_ref.rollout.enforce_eager": True,
    "actor_rollout_ref.rollout.max_num_seqs": 16,
    "actor_rollout_ref.rollout.max_model_len": 128,
    "actor_rollout_ref.rollout.gpu_memory_utilization": 0.3,
    "+actor_rollout_ref.rollout.enable_sleep_mode": False,
}


@pytest.mark.slow
def test_weights_reach_vllm_and_hapo_heats_its_second_batch(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two steps of GRPO, two of HAPO. What vLLM reports is what the worker computes at the weights of the moment, but
    for the last batch, which is drawn at adapted temperatures."""
    run.model(tmp_path / "model")
    given = {
        **run.documented(),
        **run.problems(tmp_path / "data", 64, 16),
        **SETTINGS,
        "trainer.v1.trainer_mode": "tokenpo_turns",
        "+algorithm.tokenpo.method": "hapo",
        "+algorithm.tokenpo.options.tau": 0.4,
        "actor_rollout_ref.model.path": tmp_path / "model",
        "trainer.default_local_dir": tmp_path / "checkpoints",
        "trainer.total_training_steps": 4,
    }
    theirs, ours = cpu.environment(site), run.environment()
    paths = os.pathsep.join([theirs["PYTHONPATH"], ours["PYTHONPATH"]])
    env = {**theirs, **ours, "PYTHONPATH": paths, CHOSEN: "grpo,hapo"}
    with cpu.shared_memory_freed():
        run.main_ppo(given, tmp_path, timeout=580, server="vllm", env=env)
    told = [json.loads(line) for line in (tmp_path / "checkpoints" / LOG).read_text().splitlines()]
    assert [line["method"] for line in told] == ["grpo", "grpo", "hapo", "hapo"]
    apart = [line["training/rollout_probs_diff_mean"] for line in told]  # of probabilities, not of their logarithms
    assert max(apart[:3]) < 1e-5 and apart[3] > 1e-4, apart
    assert all(line["actor/grad_norm"] > 0 for line in told)
