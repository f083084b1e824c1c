"""verl's configuration as its own command line composes it."""

import copy
import functools

from hydra import compose, initialize_config_module
from omegaconf import DictConfig, OmegaConf, open_dict

BASE = [
    "trainer.v1.trainer_mode=tokenpo",
    "algorithm.adv_estimator=grpo",
    "actor_rollout_ref.rollout.name=cpu",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=4",
    "actor_rollout_ref.rollout.n=8",
    "reward.reward_model.rollout.name=cpu",
]


def composed(*words: str) -> DictConfig:
    """A configuration of its own with these overrides, for a rollout server on the CPU; Hydra, which is slow, is asked
    once."""
    config = copy.deepcopy(_base())
    with open_dict(config):
        config.merge_with(OmegaConf.from_dotlist([word.lstrip("+") for word in words]))
    return config


def of_command(words: list[str], *more: str) -> DictConfig:
    """The configuration that verl's main program reads from a command."""
    assert words[1:3] == ["-m", "verl.trainer.main_ppo"]
    return _composed([*words[3:], *more])


@functools.cache
def _base() -> DictConfig:
    return _composed(BASE)


def _composed(words: list[str]) -> DictConfig:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=words)
