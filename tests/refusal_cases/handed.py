"""SkyRL and prime-rl: their contracts; neither has to be installed."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import torch

from tokenpo.core.objective import Objective
from tokenpo.core.parts import CreditStage, Penalty, ReferenceKl
from tokenpo.engines import prime_rl, skyrl
from tokenpo.engines.advantage_only import even_credit
from tokenpo.methods import method

from .case import Case


@dataclasses.dataclass(frozen=True)
class _Likelihood(Penalty):
    """A penalty that reads nothing but the loss's own log-probabilities."""

    def __call__(self, batch, trust):
        return batch.policy.logprob


@dataclasses.dataclass(frozen=True)
class _Surprise(CreditStage):
    """Credit from old log-probabilities."""

    def __call__(self, rollouts, bonus):
        return rollouts.old_logprob


@dataclasses.dataclass(frozen=True)
class _Own(type(method("dapo").aggregate)):
    """A denominator of the user's."""


def _skyrl(objective: Objective | str, **parts: object) -> Callable[[Path], object]:
    value = method(objective) if isinstance(objective, str) else objective
    return lambda directory: skyrl.require(dataclasses.replace(value, **parts))


def _prime(name: str) -> Callable[[Path], object]:
    return lambda directory: prime_rl.require(method(name))


def _setting(**given: object) -> Callable[[Path], object]:
    usual = {"loss_reduction": "token_mean", "use_kl_loss": False, "advantage_batch_normalize": False}
    return lambda directory: skyrl.require_settings(method("dapo"), SimpleNamespace(**(usual | given)))


def _step_wise(directory: Path) -> None:
    rewards = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    even_credit(method("opo"), rewards, ["a", "a"], skyrl.STEP_WISE)


def _unused(name: str, value: object, defaults: dict[str, object]) -> Callable[[Path], object]:
    """As in SkyRL's configuration, where a dot in the name is a section."""
    section, _, key = name.rpartition(".")
    config = SimpleNamespace(**{key: value})
    if section:
        config = SimpleNamespace(**{section: config})
    return lambda directory: skyrl.require_unused(method("dapo"), config, defaults)


REMEDY = "choose another method, or train with the embedded engine, TRL or verl"
SKYRL = (
    ("`tepo`, which reads `entropy`", _skyrl("tepo"), ("tepo", "entropy")),
    ("`clip_cov`, which looks at a whole update", _skyrl("clip_cov"), ("clip_cov", "whole update")),
    ("`ha_dw`, which remembers", _skyrl("ha_dw"), ("ha_dw", "remembers")),
    ("an objective with a penalty of your own", _skyrl("grpo", penalties=(_Likelihood(),)), ("grpo", "proportional")),
    (
        "an objective with a penalty on leaving the reference",
        _skyrl("grpo", penalties=(ReferenceKl(0.1),)),
        ("grpo", "ref_logprob"),
    ),
    ("an objective whose credit reads old log-probabilities", _skyrl("grpo", credit=_Surprise()), ("grpo", "credit")),
    ("an objective with a denominator of your own", _skyrl("dapo", aggregate=_Own()), ("dapo",)),
)
SETTINGS = (
    ("`trainer.algorithm.use_kl_loss=true`", "use_kl_loss", True, "False"),
    ("`trainer.algorithm.use_entropy_loss=true`", "use_entropy_loss", True, "False"),
    ("`trainer.algorithm.loss_reduction=prompt_mean` with `dapo`", "loss_reduction", "prompt_mean", "'token_mean'"),
    ("`trainer.algorithm.advantage_batch_normalize=true`", "advantage_batch_normalize", True, "False"),
)
OFF = "off_policy_correction."
UNUSED = (
    ("eps_clip_low", 0.1, skyrl.LOSS, 0.2),
    ("eps_clip_high", 0.28, skyrl.LOSS, 0.2),
    ("clip_ratio_c", 10.0, skyrl.LOSS, 3.0),
    ("use_tis", True, skyrl.LOSS, False),
    (f"{OFF}tis_ratio_type", "token", skyrl.LOSS, None),
    (f"{OFF}sequence_mask_metric", "geometric", skyrl.LOSS, None),
    (f"{OFF}outlier_token_is_threshold_low", 1e-4, skyrl.LOSS, None),
    (f"{OFF}outlier_token_is_threshold_high", 100.0, skyrl.LOSS, None),
    (f"{OFF}token_mask_is_threshold_low", 0.5, skyrl.LOSS, None),
    (f"{OFF}token_mask_is_threshold_high", 2.0, skyrl.LOSS, None),
    ("cispo.cispo_eps_clip_low", 0.2, skyrl.LOSS, 1.0),
    ("cispo.cispo_eps_clip_high", 0.28, skyrl.LOSS, 4.0),
    ("cispo.cispo_anchor", "rollout", skyrl.LOSS, "old"),
    ("sapo.tau_pos", 2.0, skyrl.LOSS, 1.0),
    ("sapo.tau_neg", 2.0, skyrl.LOSS, 1.05),
    ("dppo.dppo_type", "binary_kl", skyrl.LOSS, "binary_tv"),
    ("dppo.delta_low", 0.05, skyrl.LOSS, 0.2),
    ("dppo.delta_high", 0.05, skyrl.LOSS, 0.2),
    ("grpo_norm_by_std", False, skyrl.ESTIMATOR, True),
    ("gamma", 0.9, skyrl.ESTIMATOR, 1.0),
    ("lambd", 0.9, skyrl.ESTIMATOR, 1.0),
)
CASES = [
    *(Case(f"SkyRL: {request}", ask, thing, REMEDY) for request, ask, thing in SKYRL),
    *(
        Case(f"SkyRL: {request}", _setting(**{name: value}), (name,), f"set it to {back}")
        for request, name, value, back in SETTINGS
    ),
    *(
        Case(
            f"SkyRL: `trainer.algorithm.{name}={value}` with our {'loss' if defaults is skyrl.LOSS else 'estimator'}",
            _unused(name, value, defaults),
            (name, "dapo"),
            f"set it to {back!r}",
        )
        for name, value, defaults, back in UNUSED
    ),
    Case(
        "SkyRL: `opo`, whose credit reads lengths, with `generator.step_wise_trajectories=true`",
        _step_wise,
        ("opo", "step_wise_trajectories"),
        "set it to false, or " + REMEDY,
    ),
    Case("prime-rl: `grpo`, the mean over responses", _prime("grpo"), ("grpo", "SequenceMean"), REMEDY),
    Case("prime-rl: `gtpo`, which reads `old_entropy`", _prime("gtpo"), ("gtpo", "old_entropy"), REMEDY),
]
