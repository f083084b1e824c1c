"""What the embedded engine refuses: inputs that nobody gives, and models that cannot give them."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

import refused
import tokenpo
from small_recipes import merged
from tokenpo.core.parts import Keep, Signal
from tokenpo.train.models import load, locate, save
from tokenpo.train.recipe.objective import require_here
from tokenpo.train.recipe.plan import Plan
from tokenpo.train.run.embedded import Local


@dataclasses.dataclass(frozen=True)
class _Hidden(Signal):
    """A part of the user's own that reads what no engine here has."""

    reads = {"hidden_states"}


@dataclasses.dataclass(frozen=True)
class _Gain(Signal):
    """A part of the user's own that reads a gain, and leaves open of which segments."""

    reads = {"gain"}


@pytest.mark.parametrize(
    ("name", "method", "parts"),
    [
        ("hidden_states", "grpo", {"weights": (Keep(_Hidden()),)}),
        ("gain", "grpo", {"weights": (Keep(_Gain()),)}),
        ("value", "ppo", {"critic": None}),
    ],
)
def test_an_objective_whose_input_nobody_gives(name: str, method: str, parts: dict[str, Any]) -> None:
    objective = dataclasses.replace(tokenpo.method(method), name="mine", **parts)
    refused.check(["mine", name, "the embedded engine"], require_here, objective)


def build(**sections: Any) -> object:
    raw: dict[str, Any] = {"model": {"path": "tiny", "device": "cpu"}, "evaluate": {"problems": 0}}
    return Local.open(Plan(merged(raw, sections)))


@pytest.mark.parametrize(
    ("names", "method", "teacher"),
    [("gkd teacher_divergence", "gkd", {"hint": "see "}), ("nthr influence Qwen3ForCausalLM", "nthr", None)],
)
def test_a_head_with_an_adapter(names: str, method: str, teacher: dict[str, str] | None, tmp_path: Path) -> None:
    lm = load(locate("tiny"))  # an adapter on a head that is the embedding is refused too
    lm.model.config.tie_word_embeddings = False
    lm.model.lm_head.weight = torch.nn.Parameter(lm.model.lm_head.weight.detach().clone())
    save(lm, tmp_path / "untied")
    model = {"path": str(tmp_path / "untied"), "lora": {"rank": 2, "targets": ["q_proj", "lm_head"]}}
    refused.check(names, lambda: build(model=model, method={"name": method}, teacher=teacher))


@pytest.mark.parametrize(
    ("names", "method", "teacher"),
    [
        ("gkd teacher_divergence rollout.top_p", "gkd", {"hint": "see "}),
        ("tw_grpo divergence rollout.top_p", "tw_grpo", None),
        ("hapo temperature rollout.top_p", "hapo", None),
    ],
)
def test_whole_distributions_where_the_sampler_cuts_them(
    names: str, method: str, teacher: dict[str, str] | None
) -> None:
    refused.check(names, lambda: build(rollout={"top_p": 0.9}, method={"name": method}, teacher=teacher))


def test_whole_distributions_for_a_method_that_looks_at_the_whole_step() -> None:
    teacher = {"hint": "see ", "coef": 0.1, "form": "divergence"}
    refused.check("clip_cov teacher_divergence", lambda: build(method={"name": "clip_cov"}, teacher=teacher))
