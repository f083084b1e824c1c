"""What our trainer in verl, our names in verl's registries and the plug-in refuse."""

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf  # pyright: ignore[reportMissingImports]
from verl.experimental.separation.ray_trainer import SeparateRayPPOTrainer  # pyright: ignore[reportMissingImports]
from verl.trainer.ppo.v1 import trainer_base  # pyright: ignore[reportMissingImports]

import refused
import tokenpo
import tokenpo.hosts.verl.plugin  # where the package is on the path but not installed
from hosts.verl.support.composed import composed
from tokenpo.base import errors
from tokenpo.core.learner import Learner
from tokenpo.hosts.verl.configure import configure
from tokenpo.hosts.verl.registries import ESTIMATOR, LOSS_MODE
from tokenpo.hosts.verl.settings import ACTOR, ROLLOUT, SETTINGS, Setting
from tokenpo.hosts.verl.trainer import TokenPOTrainer, several_outputs

# A value other than verl's default, of the setting's own kind.
_OTHER = (
    "'grpo':gae False:True True:False None:0.5 0:0.01 'vanilla':gspo 'token-mean':seq-mean-token-mean 1.0:0.5 0.2:0.3 "
    "3.0:4.0 0.0002:0.002 5.0:6.0 0.1:0.2 1.05:1.1 0.001:0.01 'low_var_kl':abs"
)
OTHER = dict(pair.split(":") for pair in _OTHER.split())
# Rows for some objectives, or with several values: a method, and a value that is refused.
WHERE = {
    "algorithm.filter_groups.enable": ("ha_dw", "True"),
    f"{ACTOR}.strategy": ("grpo", "megatron"),
    f"{ACTOR}.optim.lr_scheduler_type": ("lopti", "cosine"),
    f"{ACTOR}.optim.warmup_style": ("kl_cov", "cosine"),
    f"{ACTOR}.optim.lr_warmup_steps": ("clip_cov", "5"),
    f"{ACTOR}.optim.lr_warmup_steps_ratio": ("sent", "0.1"),
    f"{ROLLOUT}.top_p": ("grpo", "0.9"),
    f"{ROLLOUT}.top_k": ("dppo_tv", "50"),
    f"{ROLLOUT}.name": ("hapo", "sglang"),
    "critic.loss_agg_mode": ("ppo", "seq-mean-token-mean"),
    f"{ROLLOUT}.agent.default_agent_loop": ("hapo", "tool_agent"),
    f"{ROLLOUT}.temperature": ("opd", "0.7"),
}
# An override with which the method of such a row reads its input.
BESIDE = {f"{ROLLOUT}.top_p": "algorithm.rollout_correction.rollout_is=token"}


def ours(method: str, *words: str) -> object:
    """verl's main program with these overrides, up to our trainer's constructor."""
    return configure(composed(f"+algorithm.tokenpo.method={method}", *words))


def theirs(mode: str, *words: str) -> object:
    """verl's own trainer."""
    return trainer_base.get_trainer_cls(mode)(config=composed(f"trainer.v1.trainer_mode={mode}", *words))


@pytest.mark.parametrize("setting", [one for one in SETTINGS if one.only or one.never], ids=lambda one: one.key)
def test_a_setting_of_verls(setting: Setting) -> None:
    method, value = WHERE.get(setting.key) or ("grpo", OTHER[repr(setting.only[0])])
    words = [word for key, word in BESIDE.items() if key == setting.key]
    refused.check([f"{setting.key}={value}", method], ours, method, f"{setting.key}={value}", *words)


@pytest.mark.parametrize(
    "pair",
    (
        "igrpo:drafts nthr:influence thr:influence tw_grpo:divergence vineppo:gain spo:gain ospo:gain "
        "arm:prompt_logprob "
        "otb:old_collision gigpo:anchor gdpo:rewards gkd:teacher_divergence"
    ).split(),
)
def test_a_method(pair: str) -> None:
    refused.check(pair.split(":"), ours, pair.split(":")[0])


@pytest.mark.parametrize(
    ("names", "method", "words"),
    [
        ("tepo entropy_drift", "tepo", ["+algorithm.tokenpo.options.decreasing=analytic"]),
        (
            "grpo leaves",
            "grpo",
            ["+algorithm.tokenpo.correction.preset=mis_geo", "+algorithm.tokenpo.correction.leaves=true"],
        ),
    ],
)
def test_a_setting_of_ours(names: str, method: str, words: list[str]) -> None:
    refused.check(names, ours, method, *words)


_IGNORED = (
    "algorithm.norm_adv_by_std_in_grpo=False algorithm.gamma=0.9 algorithm.lam=0.9 algorithm.use_pf_ppo=True "
    "critic.enable=True trainer.critic_warmup=5"
)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("gtpo old_entropy", [f"{LOSS_MODE}=tokenpo/gtpo"]),
        ("ha_dw remembers", [f"{ESTIMATOR}=tokenpo/ha_dw"]),
        ("vineppo gain", [f"{LOSS_MODE}=tokenpo/vineppo"]),
        ("grpo loss_agg_mode=token-mean", [f"{LOSS_MODE}=tokenpo/grpo"]),
        (
            "dr_grpo loss_scale_factor",
            [f"{LOSS_MODE}=tokenpo/dr_grpo", f"{ACTOR}.loss_agg_mode=seq-mean-token-sum-norm"],
        ),
        ("cispo clip_ratio_high=0.28", [f"{LOSS_MODE}=tokenpo/cispo", f"{ACTOR}.clip_ratio_high=0.28"]),
        ("cispo rollout_is=token", [f"{LOSS_MODE}=tokenpo/cispo", "algorithm.rollout_correction.rollout_is=token"]),
        *((f"grpo {word}", [f"{ESTIMATOR}=tokenpo/grpo", word]) for word in _IGNORED.split()),
    ],
)
def test_a_name_in_verls_own_trainer(names: str, words: list[str]) -> None:
    refused.check(names, theirs, "sync", *words)


_BYPASS = "algorithm.rollout_correction.bypass_mode=True"


def separated(*words: str) -> None:
    """As verl's fully asynchronous trainer starts its workers, which are left out."""
    SeparateRayPPOTrainer._create_worker_classes(SimpleNamespace(config=composed(*words)))


@pytest.mark.parametrize("trained", [separated, functools.partial(theirs, "separate_async")])
@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("dapo bypass_mode=True", [f"{LOSS_MODE}=tokenpo/dapo"]),
        ("gpg LogLikelihood older", [f"{LOSS_MODE}=tokenpo/gpg", _BYPASS]),
        ("gtpo old_entropy", [f"{LOSS_MODE}=tokenpo/gtpo", _BYPASS]),
        ("dapo rollout_rs", [f"{LOSS_MODE}=tokenpo/dapo", _BYPASS, "algorithm.rollout_correction.rollout_rs=token_k1"]),
        ("gtpo old_entropy", [f"{ESTIMATOR}=tokenpo/gtpo"]),
    ],
)
def test_a_name_in_verls_asynchronous_trainers(names: str, words: list[str], trained: Callable[..., object]) -> None:
    refused.check(names, trained, *words)


def test_a_column_that_names_a_loop_of_verls_where_the_temperature_adapts() -> None:
    trainer: Any = TokenPOTrainer.__new__(TokenPOTrainer)
    trainer.learner, trainer.global_steps = Learner(tokenpo.method("hapo"), length=9), 1
    trainer.config = OmegaConf.create({"data": {"train_batch_size": 2}})
    columns = {"raw_prompt": ["1+1=", "1+2="], "agent_name": ["single_turn_agent", "tool_agent"]}
    trainer.train_dataloader_it = iter([{name: np.array(cells, dtype=object) for name, cells in columns.items()}])
    refused.check("hapo temperature tool_agent agent_name", trainer._next_train_batch)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [("gspo", {}, "whole responses"), ("kl_cov", {}, "whole updates"), ("opd", {}, "needs teacher_logprob"),
     ("ppo", {"token_reward": True}, "needs token_reward")],
)  # fmt: skip
def test_several_outputs_of_a_session(name: str, options: dict, words: str) -> None:
    refused.check(
        f"{name} session output dapo {words}", lambda: errors.refuse(several_outputs(tokenpo.method(name, **options)))
    )
    assert not [*several_outputs(tokenpo.method("dapo"))]
