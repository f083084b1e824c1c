"""What the adapters to SkyRL and prime-rl refuse; neither has to be installed."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

import refused
from tokenpo.core.objective import Objective
from tokenpo.core.parts import CreditStage, Penalty, ReferenceKl
from tokenpo.hosts import prime_rl, skyrl
from tokenpo.methods import method


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


def own(name: str, **parts: Any) -> Objective:
    return dataclasses.replace(method(name), **parts)


@pytest.mark.parametrize(
    ("names", "objective"),
    [
        ("tepo entropy", method("tepo")),
        (["clip_cov", "whole update"], method("clip_cov")),
        ("ha_dw remembers", method("ha_dw")),
        ("grpo proportional", own("grpo", penalties=(_Likelihood(),))),
        ("grpo ref_logprob", own("grpo", penalties=(ReferenceKl(0.1),))),
        ("grpo credit", own("grpo", credit=_Surprise())),
        ("dapo", own("dapo", aggregate=_Own())),
    ],
)
def test_an_objective_in_skyrl(names: str, objective: Objective) -> None:
    refused.check(names, skyrl.require, objective)


@pytest.mark.parametrize("names", ["grpo SequenceMean", "gtpo old_entropy", "vaco Aligned sampled"])
def test_a_method_in_prime_rl(names: str) -> None:
    refused.check(names, prime_rl.require, method(names.split()[0]))


USUAL = {"loss_reduction": "token_mean", "use_kl_loss": False, "advantage_batch_normalize": False}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("use_kl_loss", True),
        ("use_entropy_loss", True),
        ("loss_reduction", "prompt_mean"),
        ("advantage_batch_normalize", True),
    ],
)
def test_a_setting_of_skyrl_that_changes_the_loss(name: str, value: object) -> None:
    refused.check(name, skyrl.require_settings, method("dapo"), SimpleNamespace(**{**USUAL, name: value}))
