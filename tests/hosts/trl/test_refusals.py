"""What `TokenPOConfig` and `TokenPOTrainer` refuse."""

import asyncio
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import IterableDataset  # pyright: ignore[reportMissingImports]
from transformers import AutoTokenizer, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

import refused
import tokenpo
from tokenpo.base.errors import TokenPOError
from tokenpo.hosts.trl import TokenPOConfig, checks
from tokenpo.hosts.trl.settings import OVERRIDING, REFUSED
from tokenpo.hosts.trl.temperature import Temperature
from tokenpo.train.models.directory import ASSETS
from trl_support.small import LORA, config, prompts, trainer


def other(name: str) -> Any:
    """A value of TRL's field other than its default."""
    default = TokenPOConfig.__dataclass_fields__[name].default
    return not default if isinstance(default, bool) else 0.37 if isinstance(default, float | None) else "other"


@pytest.mark.parametrize("name", [one.name for one in REFUSED])
def test_a_field_of_trls_own_loss(name: str, tmp_path: Path) -> None:
    refused.check([f"{name} = {other(name)!r}"], lambda: config(tmp_path, **{name: other(name)}))


@pytest.mark.parametrize(
    ("key", "value"), [("do_sample", False), ("num_beams", 4), *((key, 0.37) for key in OVERRIDING), ("seed", 3)]
)
def test_a_keyword_of_generation(key: str, value: Any, tmp_path: Path) -> None:
    """A seed makes the responses to a prompt copies in vLLM."""
    asked = {"generation_kwargs": {key: value}, "use_vllm": key == "seed"}
    refused.check([f"generation_kwargs[{key!r}] = {value!r}"], lambda: config(tmp_path, **asked))


def samples(*positional: Any, **named: Any) -> dict[str, Any]:
    return {}


OWN: list[dict[str, Any]] = [{"rollout_func": samples}, {"tools": [samples]}, {"environment_factory": samples}]
HAPO, DYNAMIC = {"method": "hapo"}, {"dynamic_sampling": True}
VLLM: dict[str, Any] = {"use_vllm": True}
CORRECTING = {"method": "dppo_tv", **VLLM}
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
    ("dppo_tv vllm_importance_sampling_mode", {**CORRECTING, "vllm_importance_sampling_mode": "token_truncate"}, {}),
    ("dppo_tv vllm_importance_sampling_clip_max", {**CORRECTING, "vllm_importance_sampling_clip_max": 5.0}, {}),
    ("dppo_tv vllm_importance_sampling_clip_min", {**CORRECTING, "vllm_importance_sampling_clip_min": 0.5}, {}),
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
    ("vllm_importance_sampling_mode sequnce_mask", {"vllm_importance_sampling_mode": "sequnce_mask"}, {}),
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
    ("dynamic_sampling log_completions", {**DYNAMIC, "log_completions": True}, {}),
]


@pytest.mark.parametrize(("names", "settings", "given"), TRAINERS)
def test_a_trainer(names: str, settings: dict[str, Any], given: dict[str, Any], tmp_path: Path) -> None:
    """Before it looks for a model."""
    refused.check(names, lambda: trainer("a/model", tmp_path, given, **settings))


SHAPE: dict[str, Any] = {
    "vocab_size": 259,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
}
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


@pytest.mark.parametrize(
    ("names", "left"),
    [
        *((f"generation_config.json {name}", {name: value}) for name, value in {
            "num_beams": 2, "typical_p": 0.9, "min_p": 0.1, "no_repeat_ngram_size": 2, "min_new_tokens": 3,
            "suppress_tokens": [5], "bad_words_ids": [[5]],
        }.items()),
        ("generation_config saved", {"do_sample": False, "temperature": 1e-6}),
    ],
)  # fmt: skip
def test_the_models_own_generation_config(names: str, left: dict, model_dir: Path, tmp_path: Path) -> None:
    """transformers takes from it what TRL's settings leave open, and refuses to save it with settings unused."""
    model = Qwen3ForCausalLM.from_pretrained(model_dir)
    model.generation_config.update(**left)
    refused.check(names, lambda: trainer(model, tmp_path, {"processing_class": AutoTokenizer.from_pretrained(ASSETS)}))


def test_all_faults_at_once(model_dir: Path, tmp_path: Path) -> None:
    names = "3 faults: epsilon generation_kwargs['num_beams'] trace_every"
    asked = {"epsilon": 0.1, "generation_kwargs": {"num_beams": 2}, "trace_every": -1}
    refused.check(names, lambda: config(tmp_path, **asked))
    names = "3 faults: opd top_k gradient_accumulation_steps"
    asked = {"method": "opd", "top_k": 5, "gradient_accumulation_steps": 4, "steps_per_generation": 2, **VLLM}
    refused.check(names, lambda: trainer("a/model", tmp_path, **asked))
    model = Qwen3ForCausalLM.from_pretrained(model_dir)
    model.generation_config.update(typical_p=0.9)
    given = {"processing_class": AutoTokenizer.from_pretrained(ASSETS), "peft_config": LORA}
    refused.check("2 faults: lora_dropout typical_p", lambda: trainer(model, tmp_path, given))


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


@pytest.mark.parametrize("fits", [True, False])
def test_prompts_longer_than_the_models_positions(fits: bool, model_dir: Path, tmp_path: Path) -> None:
    """Prompts of four tokens and responses of eight."""
    model = Qwen3ForCausalLM.from_pretrained(model_dir)
    model.config.max_position_embeddings = 12 if fits else 11
    given = {"processing_class": AutoTokenizer.from_pretrained(ASSETS), "train_dataset": prompts(8)}
    made = trainer(model, tmp_path, given, max_steps=1)
    if fits:
        made.train()
    else:
        refused.check("prompt of 4 tokens exceed 11 positions", made.train, error=TokenPOError)


@pytest.mark.parametrize("name", ["prompts", "completions"])
def test_a_column_under_the_name_of_trls_own(name: str, model_dir: Path, tmp_path: Path) -> None:
    rows = prompts(8).add_column(name, ["2"] * 8)  # pyright: ignore[reportCallIssue]
    refused.check(f"column {name} rename_column", lambda: trainer(str(model_dir), tmp_path, {"train_dataset": rows}))


async def later(completions: list[str], **columns: Any) -> list[str]:
    return ["1"] * len(completions)


GAVE = {
    "0.5: list 4 completions": lambda completions, **columns: 0.5,
    "[0.5]: list 4 completions": lambda completions, **columns: [0.5],
    "'1' row 1": lambda completions, **columns: [0.5] + ["1"] * (len(completions) - 1),
    "'1' row 0": later,
}


@pytest.mark.parametrize("names", GAVE)
def test_a_reward_function_gives_a_number_for_each_response(names: str) -> None:
    """TRL fails on these with a TypeError of torch's, or takes fewer."""

    def ask() -> None:
        (given,) = checks.checked([GAVE[names]])
        made = given(completions=["a"] * 4, answer=["b"] * 4)
        if inspect.iscoroutine(made):
            asyncio.run(made)

    refused.check(names, ask, error=TokenPOError)
