"""verl's configuration as its own command line composes it, for a rollout server on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hydra import compose, initialize_config_module
from omegaconf import DictConfig

BASE = [
    "trainer.v1.trainer_mode=tokenpo", "algorithm.adv_estimator=grpo", "actor_rollout_ref.rollout.name=cpu",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4", "actor_rollout_ref.rollout.n=8",
    "reward.reward_model.rollout.name=cpu",
]  # fmt: skip


@contextmanager
def composing() -> Iterator[Callable[..., DictConfig]]:
    """Makes a configuration from overrides while it lasts."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        yield lambda *words: compose("ppo_trainer", overrides=[*BASE, *words])
