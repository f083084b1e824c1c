"""The embedded engine."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import tokenpo
from small_recipes import merged
from tokenpo.cli.view import SilentView
from tokenpo.core.parts import Keep, Signal
from tokenpo.engines.embedded.directions import AtCheckpoint
from tokenpo.engines.embedded.loop import build_engine, train
from tokenpo.models import load, locate, save
from tokenpo.recipe.config import Config
from tokenpo.recipe.objective import require_here
from tokenpo.recipe.plan import Plan

from .case import Case


@dataclasses.dataclass(frozen=True)
class _Hidden(Signal):
    """A part of the user's own that reads what no engine here has."""

    reads = {"hidden_states"}


@dataclasses.dataclass(frozen=True)
class _Gain(Signal):
    """A part of the user's own that reads a gain, and leaves open of which segments."""

    reads = {"gain"}


def _own(method: str, **parts: Any) -> Callable[[Path], object]:
    return lambda directory: require_here(dataclasses.replace(tokenpo.method(method), name="mine", **parts))


def _recipe(directory: Path, **sections: dict[str, Any]) -> Config:
    raw: dict[str, Any] = {
        "model": {"path": "tiny", "device": "cpu"},
        "rollout": {"prompts": 4, "group_size": 4, "max_new_tokens": 64},
        "train": {"steps": 1, "minibatches": 1},
        "evaluate": {"problems": 0},
        "output": {"dir": str(directory / "run")},
    }
    return merged(raw, sections)


def _apart(directory: Path) -> None:
    """Two forward passes in float32 never agree to a trillionth of a nat."""
    train(_recipe(directory, train={"ratio_tolerance": 1e-12}), SilentView())


def _adapted_head(directory: Path, **sections: dict[str, Any]) -> None:
    lm, path = load(locate("tiny")), directory / "untied"  # an adapter on a head that is the embedding is refused too
    lm.model.config.tie_word_embeddings = False
    lm.model.lm_head.weight = torch.nn.Parameter(lm.model.lm_head.weight.detach().clone())
    save(lm, path)
    model = {"path": str(path), "lora": {"rank": 2, "targets": ["q_proj", "lm_head"]}}
    build_engine(Plan(_recipe(directory, model=model, **sections)))


def _beside(directory: Path, name: str, trained: str = "grpo") -> None:
    train(_recipe(directory, method={"name": trained}), SilentView())
    AtCheckpoint(directory / "run", tokenpo.method(name).needs, None, 8, 64)


_WHOLE = {"hint": "see ", "coef": 0.1, "form": "divergence"}
CASES = [
    Case("an objective of your own, `mine`, that reads `hidden_states`", _own("grpo", weights=(Keep(_Hidden()),)),
         ("mine", "hidden_states"), "choose another method, or compute hidden_states yourself"),
    Case("an objective of your own, `mine`, that reads `gain`, without a word on where continuations are drawn",
         _own("grpo", weights=(Keep(_Gain()),)), ("mine", "gain"), "by tokenpo.core.parts.Coalitions"),
    Case("an objective of your own, `mine`, that reads `value`, without a word on what it is fitted to",
         _own("ppo", critic=None), ("mine", "value"), "by Objective(critic=tokenpo.core.parts.Critic())"),
    Case("`tokenpo gradients` of `ppo` at a run of `grpo`", lambda directory: _beside(directory, "ppo"),
         ("value", "grpo"), "take a run of such a method"),
    Case("`tokenpo gradients` of `opd` at a run without a teacher", lambda directory: _beside(directory, "opd"),
         ("a teacher",), "take a run whose recipe names it"),
    Case("`tokenpo gradients` of `gkd`",
         lambda directory: AtCheckpoint(directory, tokenpo.method("gkd").needs, None, 8, 64), ("teacher_divergence",),
         "leave out methods that compare whole distributions"),
    Case("`gkd` for a model whose head carries a LoRA adapter",
         lambda directory: _adapted_head(directory, method={"name": "gkd"}, teacher={"hint": "see "}),
         ("gkd", "teacher_divergence"), "leave the head out of the LoRA targets"),
    Case("`tokenpo gradients` at a run of `igrpo`", lambda directory: _beside(directory, "grpo", "igrpo"),
         ("igrpo", "drafts"), "take a run without drafts"),
    Case("`tokenpo gradients` of `vineppo`",
         lambda directory: AtCheckpoint(directory, tokenpo.method("vineppo").needs, None, 8, 64), ("gain",),
         "leave out methods that read gain"),
    Case("`tokenpo gradients` of `remax`",
         lambda directory: AtCheckpoint(directory, tokenpo.method("remax").needs, None, 8, 64), ("baseline",),
         "leave out methods that read baseline"),
    Case("`nthr` for a model whose head carries a LoRA adapter",
         lambda directory: _adapted_head(directory, method={"name": "nthr"}),
         ("nthr", "influence", "Qwen3ForCausalLM"), "leave the head out of the LoRA targets"),
    Case("`vineppo` on a task with a tool",
         lambda directory: build_engine(
             Plan(_recipe(directory, method={"name": "vineppo"}, task={"name": "dial_calculator"}))
         ),
         ("vineppo", "dial_calculator"), "take a task without a tool"),
    Case("`clip_cov` with `teacher.form = \"divergence\"`",
         lambda directory: build_engine(Plan(_recipe(directory, method={"name": "clip_cov"}, teacher=_WHOLE))),
         ("clip_cov", "teacher_divergence"), "teacher.form = 'credit' or 'penalty'"),
    Case("a sampler and a trainer that disagree by more than `train.ratio_tolerance`", _apart, ("grpo", "ratio"),
         "set rollout.rescore = true", varying=r"(?<=\| is )\S+(?= nats)"),
]  # fmt: skip
