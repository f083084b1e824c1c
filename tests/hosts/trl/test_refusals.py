"""What `TokenPOConfig` and `TokenPOTrainer` refuse."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import IterableDataset  # pyright: ignore[reportMissingImports]
from transformers import AutoTokenizer, Qwen3MoeConfig, Qwen3MoeForCausalLM

import refused
import tokenpo
from tokenpo.hosts.trl import TokenPOConfig
from tokenpo.hosts.trl.settings import OVERRIDING, REFUSED
from tokenpo.hosts.trl.temperature import Temperature
from tokenpo.train.models.directory import ASSETS
from trl_support.small import LORA, config, prompts, trainer


def other(name: str) -> Any:
    """A value of TRL's field other than its default."""
    default = TokenPOConfig.__dataclass_fields__[name].default
    return not default if isinstance(default, bool) else 0.37 if isinstance(default, float | None) else "other"


@pytest.mark.parametrize("name", REFUSED)
def test_a_field_of_trls_own_loss(name: str, tmp_path: Path) -> None:
    refused.check([f"{name} = {other(name)!r}"], lambda: config(tmp_path, **{name: other(name)}))


@pytest.mark.parametrize("key", OVERRIDING)
def test_a_keyword_of_generation(key: str, tmp_path: Path) -> None:
    asked = {"generation_kwargs": {key: 0.37}}
    refused.check([f"generation_kwargs[{key!r}] = 0.37"], lambda: config(tmp_path, **asked))


def samples(*positional: Any, **named: Any) -> dict[str, Any]:
    return {}


OWN: list[dict[str, Any]] = [{"rollout_func": samples}, {"tools": [samples]}, {"environment_factory": samples}]
HAPO, DYNAMIC = {"method": "hapo"}, {"dynamic_sampling": True}
VLLM: dict[str, Any] = {"use_vllm": True}
CUTS = {"top_p": 0.9, "top_k": 5, "min_p": 0.1}
# Settings under which vLLM samples from other logits than the trainer's, and reports their log-probabilities.
CHANGED: dict[str, dict[str, Any]] = {
    "repetition_penalty": {"repetition_penalty": 1.1},
    "vllm_structured_outputs_regex": {"vllm_structured_outputs_regex": "a+"},
    **{
        name: {"generation_kwargs": {name: value}}
        for name, value in {
            "structured_outputs": {"choice": ["Paris", "London"]},
            "logit_bias": {7: 5.0},
            "bad_words": ["no"],
            "min_tokens": 4,
            "allowed_token_ids": [7, 8],
            "presence_penalty": 0.1,
        }.items()
    },
}
# Names in the message, settings, arguments of the trainer.
METHODS = (
    "igrpo drafts, nthr influence, tw_grpo divergence, vineppo gain, ppo value, gigpo anchor, opd teacher_logprob, "
    "dppo_tv rollout_logprob, lopti num_iterations"
)
TRAINERS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *((pair, {"method": pair.split()[0]}, {}) for pair in METHODS.split(", ")),
    ("dppo_kl rollout_logprob", {"method": "dppo_kl"}, OWN[1]),
    ("dppo_kl rollout_logprob", {"method": "dppo_kl"}, OWN[2]),
    ("gdpo reward_weights", {"method": "gdpo", "reward_weights": [2.0]}, {}),
    ("dr_grpo max_completion_length", {"method": "dr_grpo", "max_completion_length": None}, {}),
    ("vespo vllm_importance_sampling_mode", {"method": "vespo", **VLLM}, {}),
    *((f"grpo rollout_logprob {name}", {**VLLM, name: value}, {}) for name, value in CUTS.items()),
    *(
        (f"{method} rollout_logprob {name}", {"method": method, **VLLM, **changed}, {})
        for method in ("grpo", "dppo_tv")
        for name, changed in CHANGED.items()
    ),
    *((f"hapo temperature {name}", {**HAPO, **VLLM, name: value}, {}) for name, value in CUTS.items()),
    *((f"hapo temperature {name}", {**HAPO, **VLLM, **changed}, {}) for name, changed in CHANGED.items()),
    ("hapo frequency_penalty", {**HAPO, **VLLM, "generation_kwargs": {"frequency_penalty": 0.1}}, {}),
    *(("hapo temperature", HAPO, given) for given in OWN),
    ("hapo use_transformers_continuous_batching", {**HAPO, "use_transformers_continuous_batching": True}, {}),
    ("hapo repetition_penalty", {**HAPO, "repetition_penalty": 1.1}, {}),
    ("gradient_accumulation_steps 4", {"gradient_accumulation_steps": 4, "steps_per_generation": 2}, {}),
    (
        "gradient_accumulation_steps passes",
        {"method": "lopti", "gradient_accumulation_steps": 2, "steps_per_generation": 1, "num_iterations": 2},
        {},
    ),
    ("dynamic_sampling", DYNAMIC, {"train_dataset": IterableDataset.from_generator(lambda: iter(()))}),
    *(("dynamic_sampling TRL", DYNAMIC, given) for given in OWN),
]


@pytest.mark.parametrize(("names", "settings", "given"), TRAINERS)
def test_a_trainer(names: str, settings: dict[str, Any], given: dict[str, Any], tmp_path: Path) -> None:
    """Before it looks for a model."""
    refused.check(names, lambda: trainer("a/model", tmp_path, given, **settings))


SHAPE: dict[str, Any] = {
    "vocab_size": 259, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
}  # fmt: skip
EXPERTS = {"moe_intermediate_size": 8, "num_experts": 2, "num_experts_per_tok": 1}


@pytest.mark.parametrize(
    ("names", "settings"),
    [
        ("grpo fused_objective=True", {"fused_objective": True}),
        ("tepo entropy_drift", {"method": "tepo", "method_options": {"decreasing": "analytic"}}),
    ],
)
def test_an_auxiliary_loss_beside_another_pass(names: str, settings: dict[str, Any], tmp_path: Path) -> None:
    model, tokenizer = Qwen3MoeForCausalLM(Qwen3MoeConfig(**SHAPE, **EXPERTS)), AutoTokenizer.from_pretrained(ASSETS)
    asked = [*names.split(), "router_aux_loss_coef=0.0"]
    refused.check(asked, lambda: trainer(model, tmp_path, {"processing_class": tokenizer}, **settings))


@pytest.mark.parametrize(
    ("names", "method", "settings"),
    [
        ("gkd teacher_divergence", tokenpo.method("gkd"), {"fused_objective": False}),
        ("clip_cov teacher_divergence", tokenpo.with_teacher(tokenpo.method("clip_cov"), 0.1, form="divergence"), {}),
    ],
)
def test_whole_distributions(names: str, method: Any, settings: dict, model_dir: Path, tmp_path: Path) -> None:
    given = {"method": method, "teacher_model": str(model_dir)}
    refused.check(names, lambda: trainer(str(model_dir), tmp_path, given, **settings))


def test_all_faults_at_once(model_dir: Path, tmp_path: Path) -> None:
    names = "2 faults: epsilon generation_kwargs['top_p']"
    asked = {"epsilon": 0.1, "generation_kwargs": {"top_p": 0.5}}
    refused.check(names, lambda: config(tmp_path, **asked))
    names = "3 faults: opd top_k gradient_accumulation_steps"
    asked = {"method": "opd", "top_k": 5, "gradient_accumulation_steps": 4, "steps_per_generation": 2, **VLLM}
    refused.check(names, lambda: trainer("a/model", tmp_path, **asked))
    given, plan = {"train_dataset": prompts(3), "peft_config": LORA}, {"num_generations": 2, "steps_per_generation": 2}
    refused.check("2 faults: lora_dropout train_dataset", lambda: trainer(str(model_dir), tmp_path, given, **plan))


def test_a_vllm_whose_log_probabilities_are_not_the_trainers(tmp_path: Path) -> None:
    """Two tokens, 0.01 and 0.03 nats from what the trainer computes in float32."""
    facts = {
        "mask": torch.ones(1, 2, dtype=torch.bool),
        "old_logprob": torch.full((1, 2), -0.9),
        "rollout_logprob": torch.tensor([[-0.91, -0.87]]),
    }
    made: Any = SimpleNamespace(
        accelerator=SimpleNamespace(gather=lambda x: x),
        model=SimpleNamespace(dtype=torch.float32),
        current=None,
        args=config(tmp_path, use_vllm=True, bf16=False),
        policy_objective=tokenpo.method("grpo"),
    )
    refused.check(["grpo", "0.02 nats"], Temperature(made, 1.0).check, {}, facts)


def test_fewer_prompts_than_a_rollout_batch(model_dir: Path, tmp_path: Path) -> None:
    """TRL's sampler leaves an incomplete batch out, and its training would end without a step."""
    plan = {"num_generations": 2, "steps_per_generation": 2}
    trainer(str(model_dir), tmp_path, {"train_dataset": prompts(4)}, **plan)
    words = "3 prompts and a rollout batch takes 4".split(", ")
    refused.check(words, lambda: trainer(str(model_dir), tmp_path, {"train_dataset": prompts(3)}, **plan))
