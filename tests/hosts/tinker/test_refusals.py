"""What a Tinker server is not asked for, and what is refused of its answers."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import refused
from tokenpo.core.learner import Learner
from tokenpo.hosts.tinker.responses import RATIO, require, rollouts
from tokenpo.methods import method

_MISSING = (
    "vineppo:gain ospo:gain igrpo:drafts ppo:value tepo:entropy gtpo:old_entropy gkd:teacher_divergence nthr:influence "
    "tw_grpo:divergence otb:old_collision hapo:temperature"
)
METHODS = dict(pair.split(":") for pair in _MISSING.split())


@pytest.mark.parametrize("name", METHODS)
def test_a_method(name: str) -> None:
    refused.check([name, METHODS[name], "Tinker"], lambda: require(method(name)))


def test_a_response_without_the_token_that_ended_it() -> None:
    row: Any = SimpleNamespace(tokens=[4, 5], logprobs=[-1.0, -1.0], stop_reason="stop")
    refused.check("server", rollouts, [SimpleNamespace(sequences=[row])], torch.zeros(1), {2})


def test_a_sampler_that_is_not_the_trainer() -> None:
    refused.check(["grpo", "0.1 nats"], Learner(method("grpo"), length=8, ratio=RATIO).compare, 0.4, 0.1)
