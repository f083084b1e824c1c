"""A whole run of verl's main program on the CPU: model and data on disk, and the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import tokenpo
from tokenpo.lm.directory import ASSETS

TESTS = Path(__file__).parents[3]
SOURCE = Path(tokenpo.__file__).parents[1]


def model(directory: Path) -> Path:
    """The package's tiny model with <|im_end|>, which verl's agent loop asks of every Qwen3."""
    shutil.copytree(ASSETS, directory)
    file = directory / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    last = dict(tokenizer["added_tokens"][-1])
    tokenizer["added_tokens"].append({**last, "id": 259, "content": "<|im_end|>", "special": True})
    file.write_text(json.dumps(tokenizer), encoding="utf-8")
    return directory


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(TESTS), str(SOURCE)])
    return {
        **os.environ,
        "PYTHONPATH": path,
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "adapters.verl.support.cpu",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HYDRA_FULL_ERROR": "1",
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONUNBUFFERED": "1",
    }


# What a CPU run needs beyond the settings of the experiment.
CPU = [
    "trainer.device=cpu",
    "actor_rollout_ref.rollout.name=cpu",
    "actor_rollout_ref.rollout.free_cache_engine=False",
    "actor_rollout_ref.rollout.load_format=auto",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
    "actor_rollout_ref.ref.fsdp_config.use_torch_compile=False",
    "actor_rollout_ref.model.use_remove_padding=False",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    *(
        f"+actor_rollout_ref.{role}.fsdp_config.mixed_precision.{kind}_dtype=fp32"
        for role in ("actor", "ref")
        for kind in ("param", "reduce", "buffer")
    ),
    "reward.num_workers=1",
    "data.dataloader_num_workers=0",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
    "ray_kwargs.ray_init.num_cpus=16",
    "+ray_kwargs.ray_init.num_gpus=2",
    "+ray_kwargs.ray_init.object_store_memory=200000000",
    "+ray_kwargs.ray_init.include_dashboard=False",
    "trainer.logger=[console,file]",
    "trainer.val_before_train=False",
    "trainer.test_freq=-1",
    "trainer.save_freq=-1",
    "trainer.nnodes=1",
]


def main_ppo(overrides: list[str], directory: Path, timeout: float) -> str:
    """Runs the main program in `directory`; its output.

    Raises:
        AssertionError: it failed; the message ends with its last lines.
    """
    words = [sys.executable, "-m", "verl.trainer.main_ppo", *CPU, *overrides]
    log = directory / "output.txt"
    with log.open("w") as stream:
        done = subprocess.run(
            words, cwd=directory, env=environment(), stdout=stream, stderr=subprocess.STDOUT, timeout=timeout
        )
    text = log.read_text(errors="replace")
    assert done.returncode == 0, text[-6000:]
    return text
