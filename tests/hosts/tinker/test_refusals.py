"""What a Tinker server is not asked for, and what is refused of its answers."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import refused
from small_recipes import merged
from tokenpo.core.learner import Learner
from tokenpo.hosts.tinker.responses import RATIO, REMEDIES, rollouts
from tokenpo.hosts.trl.objective import ALWAYS
from tokenpo.hosts.verl import PROVIDES as VERL
from tokenpo.methods import method
from tokenpo.train.recipe.objective import TAUGHT
from tokenpo.train.recipe.plan import Plan
from tokenpo.train.run.tinker.needs import accepted

_MISSING = (
    "vineppo:gain ospo:gain igrpo:drafts ppo:value tepo:entropy gtpo:old_entropy gkd:teacher_divergence nthr:influence "
    "tw_grpo:divergence otb:old_collision opd:teacher_logprob hapo:temperature"
)
METHODS = dict(pair.split(":") for pair in _MISSING.split())
SECTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "teacher.hint": {"teacher": {"hint": "{answer}"}},
    "tiny": {"model": {"path": "tiny"}},
    "LoRA model.lora.rank": {"model": {"lora": None}},
    "model.dtype": {"model": {"dtype": "bfloat16"}},
    "model.lora.alpha model.lora.targets": {"model": {"lora": {"rank": 8, "targets": ["q_proj"]}}},
    "model.device 'cuda'": {"model": {"device": "cuda"}},
    "rollout.temperature": {"rollout": {"temperature": 0.7}},
}


def ask(**sections: dict[str, Any]) -> object:
    return accepted(Plan(merged({"model": {"path": "Qwen/Qwen3-8B", "lora": {"rank": 32}}}, sections)))


@pytest.mark.parametrize("name", METHODS)
def test_a_method(name: str) -> None:
    refused.check([name, METHODS[name], "Tinker"], lambda: ask(method={"name": name}))


@pytest.mark.parametrize("names", SECTIONS)
def test_a_setting(names: str) -> None:
    refused.check(f"{names} Tinker", lambda: ask(**SECTIONS[names]))


def test_a_response_without_the_token_that_ended_it() -> None:
    row: Any = SimpleNamespace(tokens=[4, 5], logprobs=[-1.0, -1.0], stop_reason="stop")
    refused.check("Tinker", rollouts, [SimpleNamespace(sequences=[row])], torch.zeros(1), {2})


def test_a_sampler_that_is_not_the_trainer() -> None:
    refused.check(["grpo", "0.1 nats"], Learner(method("grpo"), length=8, ratio=RATIO).compare, 0.4, 0.1)


def test_a_remedy_names_engines_that_have_the_input() -> None:
    has = {"TRL": ALWAYS | TAUGHT, "verl": VERL}
    for name, remedy in REMEDIES.items():
        assert all(engine not in remedy or name in provides for engine, provides in has.items()), name
