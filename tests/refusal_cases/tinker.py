"""Tinker: recipes and methods, of which a server is not asked, and what a server returns."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from small_recipes import merged
from tokenpo.core.learner import Learner
from tokenpo.engines.tinker.needs import RATIO, accepted, refuse_gradient
from tokenpo.engines.tinker.responses import rollouts
from tokenpo.methods import method
from tokenpo.recipe.plan import Plan

from .case import Case

LOGITS = "choose a method that reads no more, or train with the embedded engine"


def _recipe(**sections: dict[str, Any]) -> Callable[[Path], object]:
    raw: dict[str, Any] = {"model": {"path": "Qwen/Qwen3-8B", "lora": {"rank": 32}}}
    return lambda directory: accepted(Plan(merged(raw, sections)))


def _method(name: str) -> Callable[[Path], object]:
    return _recipe(method={"name": name})


def _endless(directory: Path) -> None:
    row: Any = SimpleNamespace(tokens=[4, 5], logprobs=[-1.0, -1.0], stop_reason="stop")
    response: Any = SimpleNamespace(sequences=[row])
    rollouts([response], torch.zeros(1), ends={2})


def _apart(directory: Path) -> None:
    Learner(method("grpo"), length=8, ratio=RATIO).compare(0.4, 0.1)


CASES = [
    Case("`vineppo`, which reads `gain`", _method("vineppo"), ("vineppo", "gain"), "continues responses"),
    Case("`ospo`, which reads `gain`", _method("ospo"), ("ospo", "gain"), "scores their parts"),
    Case("`igrpo`, which puts drafts into its prompts", _method("igrpo"), ("igrpo", "drafts"),
         "train with the embedded engine (tokenpo train)"),
    Case("`ppo`, which reads `value`", _method("ppo"), ("ppo", "value"), "train with the embedded engine"),
    *(
        Case(f"`{name}`, which reads `{needed}`", _method(name), (name, needed), LOGITS + more)
        for name, needed, more in (
            ("tepo", "entropy", ", TRL or verl"), ("gtpo", "old_entropy", ", TRL or verl"),
            ("gkd", "teacher_divergence", " or TRL"), ("nthr", "influence", ""), ("tw_grpo", "divergence", ""),
            ("otb", "old_collision", ""),
        )
    ),
    Case("`opd` without a teacher", _method("opd"), ("opd", "teacher_logprob"), "--set teacher.path=NAME"),
    Case("in a recipe: a teacher with a hint", _recipe(teacher={"hint": "{answer}"}), ("teacher.hint",),
         "--set teacher.hint=none"),
    Case("`hapo`, which adapts the temperature", _method("hapo"), ("hapo", "temperature"),
         "choose another method, or train with the embedded engine, TRL or verl"),
    Case(
        "in a recipe: the tiny model", _recipe(model={"path": "tiny"}), ("model tiny",), "--set model.path=NAME"
    ),
    Case("in a recipe: all weights", _recipe(model={"lora": None}), ("training of all weights",),
         "--set model.lora.rank=32"),
    Case("in a recipe: LoRA on some modules", _recipe(model={"lora": {"rank": 8, "targets": ["q_proj"]}}),
         ("model.lora.alpha", "model.lora.targets"), "leave them out"),
    Case(
        "in a recipe: a GPU", _recipe(model={"device": "cuda"}), ("model.device = 'cuda'",), "--set model.device=auto"
    ),
    Case("in a recipe: a precision", _recipe(model={"dtype": "bfloat16"}), ("model.dtype", "train.autocast"),
         "leave them out"),
    Case("in a recipe: a temperature", _recipe(rollout={"temperature": 0.7}), ("rollout.temperature",),
         "--set rollout.temperature=1"),
    Case("a server whose responses lack the token that ended them", _endless, ("token that ends them",),
         "take a server that keeps it"),
    Case("a server that does not train along the gradient that it is sent",
         lambda directory: refuse_gradient("the Tinker server", ["with cross_entropy the gradient (-0.001, 0) ..."]),
         ("the gradient that it is sent",), "take another server"),
    Case("a sampler and a trainer on the server that disagree by more than `train.ratio_tolerance`", _apart,
         ("grpo", "0.1 nats"), "set rollout.rescore = true"),
]  # fmt: skip
