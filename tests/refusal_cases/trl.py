"""TRL: its trainer with our settings."""

import functools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from datasets import IterableDataset  # pyright: ignore[reportMissingImports]
from peft import LoraConfig
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from trl import GRPOConfig  # pyright: ignore

import tokenpo
from random_models import random_qwen
from tokenpo.base.errors import TokenPOError
from tokenpo.engines.trl import TokenPOConfig, TokenPOTrainer
from tokenpo.engines.trl.forward import Forward
from tokenpo.engines.trl.rollout_batch import carried
from tokenpo.engines.trl.settings import (
    OVERRIDING,
    REFUSED,
    TRANSLATED,
    Refused,
    remedy,
    require_steps_to_hold,
)
from tokenpo.engines.trl.temperature import Served, Temperature, require_server
from tokenpo.engines.trl.updates import by_groups
from tokenpo.models.directory import ASSETS
from trl_support.small import config, even, prompts

from .case import Case

EMBEDDED = "train with the embedded engine (tokenpo train)"
OFF = "for hapo: method_options={'tau': 0}"


def _trainer(model: Any = "a/model", /, *, given: Any = None, **settings: Any) -> Callable[[Path], TokenPOTrainer]:
    """A trainer with these settings; `given` goes to its constructor. Most are refused before a model is looked for."""
    return lambda directory: TokenPOTrainer(
        model(directory) if callable(model) else model, even, config(directory, **settings),
        **{"train_dataset": prompts(), **(given or {})},
    )  # fmt: skip


def _small(directory: Path) -> str:
    return str(random_qwen(directory / "model"))


SMALL: dict[str, Any] = {
    "vocab_size": 259, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8,
}  # fmt: skip
LORA = LoraConfig(lora_dropout=0.1, target_modules=["q_proj"], task_type="CAUSAL_LM")
EXPERTS = {"moe_intermediate_size": 8, "num_experts": 2, "num_experts_per_tok": 1}


def _trained(**settings: Any) -> Callable[[Path], object]:
    return lambda directory: _trainer(_small, **settings)(directory).train()


def dropped(**settings: Any) -> Callable[[Path], object]:
    """Two passes of one model over the same tokens, each without other units."""
    return _trained(model_init_kwargs={"attention_dropout": 0.9}, **settings)


def _own_samples(*positional: Any, **named: Any) -> dict[str, Any]:
    return {}


# What TRL's drawing gives for a model with images, which this environment has none of.
IMAGES = {"prompt_ids": torch.zeros(2, 1), "pixel_values": torch.zeros(2, 3)}


def _with_logits(objective: tokenpo.Objective, heat: torch.Tensor | None = None) -> Callable[[Path], object]:
    trainer: Any = SimpleNamespace(policy_objective=objective, args=SimpleNamespace(fused_objective=False))
    return lambda directory: Forward.of(trainer, objective).policy(None, IMAGES, heat=heat)


def _held(**given: Any) -> Callable[[Path], None]:
    """A trainer that holds a KL, under what this environment has not."""
    trainer: Any = SimpleNamespace(is_deepspeed_enabled=False, accelerator=SimpleNamespace(mixed_precision="no"))

    def ask(directory: Path) -> None:
        trainer.args = config(directory, kl_target=0.004)
        vars(trainer).update(given)
        require_steps_to_hold(trainer)

    return ask


def _bare_server(directory: Path) -> None:
    """What TRL's client is told by a server that runs no processor."""
    client = SimpleNamespace(get_server_info=lambda: {"model_config": {"logits_processors": []}})
    trainer: Any = SimpleNamespace(
        use_vllm=True, vllm_mode="server", vllm_generation=SimpleNamespace(vllm_client=client),
        accelerator=SimpleNamespace(is_main_process=True),
        args=config(directory, vllm_server_base_url="http://localhost:8000"),
    )  # fmt: skip
    require_server(trainer, tokenpo.method("hapo"))


def heard(directory: Path, reported: float, old: float) -> tuple[list[torch.Tensor], torch.Tensor]:
    """vLLM reports two tokens that count and one of padding; -1 is their log-probability at the adapted temperature.

    Returns:
        the temperatures at which the trainer scored, and those of HAPO's rule.
    """
    numbers = {"pivot": -1.5, "spread": 0.5, "top": 1.0, "bottom": -1.0}
    objective, entropy, heats = tokenpo.method("hapo"), torch.tensor([[0.1, 0.2, 0.3]]), []
    rule = functools.partial(objective.temperature, numbers=numbers)
    facts = {
        "mask": torch.tensor([[True, True, False]]), "old_logprob": torch.full((1, 3), old), "old_entropy": entropy,
        "rollout_logprob": torch.tensor([[reported, reported, -50.0]]),
    }  # fmt: skip

    def policy(model: object, output: object, rows: int, heat: torch.Tensor) -> tokenpo.Policy:
        heats.append(heat)
        return tokenpo.Policy(torch.full((1, 3), -1.0), entropy)

    trainer = SimpleNamespace(
        accelerator=SimpleNamespace(gather=lambda x: x), args=config(directory), model=None, policy_objective=objective,
        forward_passes=SimpleNamespace(policy=policy),
    )  # fmt: skip
    Served(trainer, 1.0, rule).check({}, facts)
    return heats, rule(entropy, 1.0)


def _coarse(directory: Path) -> None:
    """Two tokens, 0.01 and 0.03 nats from what the trainer computes in float32."""
    facts = {
        "mask": torch.ones(1, 2, dtype=torch.bool), "old_logprob": torch.full((1, 2), -0.9),
        "rollout_logprob": torch.tensor([[-0.91, -0.87]]),
    }  # fmt: skip
    trainer: Any = SimpleNamespace(
        accelerator=SimpleNamespace(gather=lambda x: x), model=SimpleNamespace(dtype=torch.float32), current=None,
        args=config(directory, use_vllm=True, bf16=False), policy_objective=tokenpo.method("grpo"),
    )  # fmt: skip
    Temperature(trainer, 1.0).check({}, facts)


def _taught(method: tokenpo.Objective, **settings: Any) -> Callable[[Path], object]:
    """A trainer whose teacher is the policy's own model."""
    return lambda directory: _trainer(_small, given={"method": method, "teacher_model": _small(directory)}, **settings)(
        directory
    )


def _asynchronous(directory: Path) -> None:
    from trl.experimental.async_grpo import AsyncGRPOConfig  # pyright: ignore

    TokenPOTrainer("a/model", even, AsyncGRPOConfig(str(directory), use_cpu=True, bf16=False))


def _replaced(refused: Refused, other: Any = None) -> Case:
    name, default = refused.name, TokenPOConfig.__dataclass_fields__[refused.name].default
    if other is None:
        other = not default if isinstance(default, bool) else 0.37 if isinstance(default, float | None) else "other"
    return Case(f"`{name}={other!r}`", lambda directory: config(directory, **{name: other}), (f"{name} = {other!r}",),
                remedy(refused, other))  # fmt: skip


def _generated(key: str, value: object, remedy: str) -> Case:
    asked = {key: value}
    return Case(f"`generation_kwargs={asked}`", lambda directory: config(directory, generation_kwargs=asked),
                (f"generation_kwargs[{key!r}] = {value!r}",), remedy)  # fmt: skip


def _corrected(setting: str, value: Any) -> Case:
    asked = {setting: value}
    return Case(f"`dppo_tv`, which corrects for vLLM itself, with `{setting}={value!r}`",
                _trainer(method="dppo_tv", use_vllm=True, **asked), ("dppo_tv", setting), "leave it at")  # fmt: skip


def _kept(name: str, value: Any, remedy: str) -> Case:
    return Case(f"`{name}={value}` in vLLM, with a correction for it", _trainer(use_vllm=True, **{name: value}),
                ("grpo", "rollout_logprob", f"{name} = {value}"), remedy)  # fmt: skip


def _reads(method: str, name: str, remedy: str = EMBEDDED, asked: str = "", **given: Any) -> Case:
    return Case(
        f"`{method}`, which reads `{name}`{asked}", _trainer(method=method, given=given), (method, name), remedy
    )


def _adaptive(asked: str, remedy: str, **how: Any) -> Case:
    return Case(f"`hapo`'s adaptive temperature with {asked}", _trainer(method="hapo", **how), ("hapo", "temperature"),
                remedy)  # fmt: skip


FIELDS = {one.name: one for one in REFUSED}
LOSSES = [*dict.fromkeys(row.theirs["loss_type"] for row in TRANSLATED if "loss_type" in row.theirs), "other"]
SAMPLER = "set use_vllm=True, or give a rollout_func that returns logprobs"
# What samples in place of TRL.
OWN = {"a `rollout_func`": {"rollout_func": _own_samples}, "tools": {"tools": [_own_samples]},
       "an environment": {"environment_factory": _own_samples}}  # fmt: skip
CUTS = [("top_p", 0.9, "leave it at 1.0"), ("top_k", 5, "leave it at 0"), ("min_p", 0.1, "leave it at 0.0")]
CASES = [
    Case("`igrpo`, which puts drafts into its prompts", _trainer(method="igrpo"), ("igrpo", "drafts"),
         "train with the embedded engine (tokenpo train)"),
    *(_reads(*row) for row in (("nthr", "influence"), ("thr", "influence"), ("tw_grpo", "divergence"),
                               ("vineppo", "gain"), ("spo", "gain"), ("ospo", "gain"), ("arm", "prompt_logprob"),
                               ("otb", "old_collision"))),
    *(_reads(name, "value", "train with the embedded engine") for name in ("ppo", "vapo")),
    _reads("gigpo", "anchor", "train with the embedded engine"),
    _reads("opd", "teacher_logprob", "give TokenPOTrainer the teacher as teacher_model", ", without a teacher"),
    Case("`gkd`, which compares whole distributions, with `fused_objective=False`",
         _taught(tokenpo.method("gkd"), fused_objective=False), ("gkd", "teacher_divergence"),
         "set fused_objective=True"),
    Case("`clip_cov` and whole distributions of a teacher",
         _taught(tokenpo.with_teacher(tokenpo.method("clip_cov"), 0.1, form="divergence")),
         ("clip_cov", "teacher_divergence"), "in the form 'credit' or 'penalty'"),
    Case("`gdpo` with `reward_weights=[2.0]`", _trainer(method="gdpo", reward_weights=[2.0]),
         ("gdpo", "reward_weights"), "give method_options={'weights': [...]}"),
    *(_reads(name, "rollout_logprob", SAMPLER)
      for name in ("dppo_tv", "dppo_kl", "rollout_is", "prime_rl", "m2po_rollout")),
    _reads("dppo_kl", "rollout_logprob", SAMPLER, ", with tools", tools=[_own_samples]),
    _reads("dppo_kl", "rollout_logprob", SAMPLER, ", with an environment", environment_factory=_own_samples),
    *(_replaced(one) for one in REFUSED if one.name != "loss_type"),
    *(_replaced(FIELDS["loss_type"], name) for name in LOSSES),
    _replaced(FIELDS["scale_rewards"], "none"),
    _generated("do_sample", False, "leave it at"),
    _generated("num_beams", 4, "leave it at"),
    *(_generated(key, 0.37, f"leave it out, and set TokenPOConfig.{name}") for key, name in OVERRIDING.items()),
    *(_corrected(f"vllm_importance_sampling_{name}", value)
      for name, value in (("mode", "token_truncate"), ("clip_max", 5.0), ("clip_min", 0.5))),
    Case("`dr_grpo`, which divides by it, with `max_completion_length=None`",
         _trainer(method="dr_grpo", max_completion_length=None), ("dr_grpo", "max_completion_length is None"),
         "method_options={'length': ...}"),
    Case("`vespo` with TRL's correction for vLLM of whole responses, its default",
         _trainer(method="vespo", use_vllm=True), ("vllm_importance_sampling_mode = 'sequence_mask'", "vespo"),
         "set it to 'token_truncate' or 'token_mask'"),
    *(_kept(*row) for row in CUTS),
    Case("a `vllm_importance_sampling_mode` that is none of TRL's",
         lambda directory: config(directory, vllm_importance_sampling_mode="sequnce_mask"),
         ("TokenPOConfig.vllm_importance_sampling_mode = 'sequnce_mask'",), "sequence_mask", TokenPOError),
    Case("`lopti`, of two passes, in one iteration", _trainer(method="lopti"), ("lopti", "num_iterations = 1"),
         "set num_iterations=2"),
    Case("an optimiser step larger than a rollout batch",
         _trainer(gradient_accumulation_steps=4, steps_per_generation=2), ("gradient_accumulation_steps = 4",),
         "set steps_per_generation=4"),
    Case("`lopti` with an optimiser step that takes both passes",
         _trainer(method="lopti", gradient_accumulation_steps=2, steps_per_generation=1, num_iterations=2),
         ("gradient_accumulation_steps = 2", "two passes"), "set steps_per_generation=2"),
    *(_adaptive(f"`{name}` in vLLM", f"{name} = {value}: {remedy}", use_vllm=True, **{name: value})
      for name, value, remedy in CUTS),
    _adaptive("structured outputs of vLLM", "vllm_structured_outputs_regex: leave it out", use_vllm=True,
              vllm_structured_outputs_regex="a+"),
    _adaptive("`generation_kwargs` that change probabilities in vLLM", "generation_kwargs['frequency_penalty']: leave",
              use_vllm=True, generation_kwargs={"frequency_penalty": 0.1}),
    Case("`hapo`'s adaptive temperature with a vLLM server that was started without our processor", _bare_server,
         ("hapo", "temperature", "http://localhost:8000"), "vllm serve MODEL --logits-processors"),
    Case("`hapo`'s adaptive temperature with a vLLM that samples without it",
         lambda directory: heard(directory, reported=-0.92, old=-0.9), ("hapo", "adapted temperature"),
         "update vLLM or TRL to the versions in docs/vllm.md"),
    Case("a vLLM whose first log-probabilities are not the trainer's, where nothing weighs for it", _coarse,
         ("grpo", "0.02 nats a token from those of TRL's trainer, above 0.001"), "let both compute in one precision"),
    *(_adaptive(asked, OFF, given=given) for asked, given in OWN.items()),
    _adaptive("continuous batching", "set use_transformers_continuous_batching=False",
              use_transformers_continuous_batching=True),
    _adaptive("`repetition_penalty`", "leave it at 1.0", repetition_penalty=1.1),
    Case("`minibatch_by='groups'` with steps that do not divide a rollout batch",
         _trainer(minibatch_by="groups", gradient_accumulation_steps=2, steps_per_generation=3, num_iterations=2),
         ("minibatch_by='groups'", "steps_per_generation = 3"), "set minibatch_by='rows'"),
    Case("`minibatch_by='groups'` with steps that take a part of a group",
         _trainer(minibatch_by="groups", per_device_train_batch_size=2, steps_per_generation=4),
         ("minibatch_by='groups'", "= 2 rows"), "make them a multiple of 4"),
    Case("`minibatch_by='groups'` for a model with images",
         lambda directory: by_groups([IMAGES], 2, torch.Generator()),
         ("minibatch_by='groups'", "pixel_values"), "set minibatch_by='rows'"),
    Case("`dynamic_sampling` with a data set that is a stream",
         _trainer(dynamic_sampling=True, given={"train_dataset": IterableDataset.from_generator(lambda: iter(()))}),
         ("dynamic_sampling",), "give a datasets.Dataset"),
    *(Case(f"`dynamic_sampling` with {asked}", _trainer(dynamic_sampling=True, given=given),
           ("dynamic_sampling", "TRL"), "no rollout_func, tools or environment_factory")
      for asked, given in OWN.items()),
    Case("`dynamic_sampling` with `log_completions`", _trainer(dynamic_sampling=True, log_completions=True),
         ("dynamic_sampling", "log_completions"), "leave one of them False"),
    Case("`dynamic_sampling` for a model with images", lambda directory: carried(IMAGES),
         ("dynamic_sampling", "pixel_values"), "leave it False for this model"),
    Case("`hapo`, whose temperature vLLM adapts from token to token, for a model with images",
         _with_logits(tokenpo.method("hapo"), torch.ones(2, 1)), ("hapo", "vLLM adapts the temperature"),
         "choose another method for this model"),
    Case("`tepo` with `decreasing='analytic'`, which reads `entropy_drift`, for a model with images",
         _with_logits(tokenpo.method("tepo", decreasing="analytic")), ("tepo", "entropy_drift"),
         "choose another method for this model"),
    Case("`archer`, which reads the reference, for a model made in memory",
         _trainer(lambda directory: Qwen3ForCausalLM(Qwen3Config(**SMALL)), method="archer"),
         ("archer", "ref_logprob"), "save it with save_pretrained and give the path"),
    Case("the auxiliary loss of a mixture of experts",
         _trainer(lambda directory: Qwen3MoeForCausalLM(Qwen3MoeConfig(**SMALL, **EXPERTS)),
                  given={"processing_class": AutoTokenizer.from_pretrained(ASSETS)}),
         ("grpo", "auxiliary loss"), "set router_aux_loss_coef=0.0"),
    Case("LoRA with dropout", _trainer(_small, given={"peft_config": LORA}),
         ("grpo", "lora_dropout", "p = 0.1", "TRL"), "set disable_dropout=True, or lora_dropout=0"),
    Case("dropout of attention, under which two passes of one model are two policies", dropped(),
         ("grpo", "the ratio of new to old policy is not 1 in TRL", "above 0.05"),
         "set disable_dropout=True, or lora_dropout=0", varying=r"(?<=\| is )\S+(?= nats)"),
    Case("`kl_target` with DeepSpeed", _held(is_deepspeed_enabled=True), ("kl_target", "DeepSpeed"),
         "with FSDP for instance"),
    Case("`kl_target` with fp16", _held(accelerator=SimpleNamespace(mixed_precision="fp16")), ("kl_target", "fp16"),
         "set bf16=True"),
    Case("`kl_target` with an optimiser that moves the weights within the backward pass",
         _trainer(_small, kl_target=0.004, optim="galore_adamw_layerwise", optim_target_modules=["q_proj"]),
         ("kl_target", "galore_adamw_layerwise"), "set optim='adamw_torch'"),
    Case("`kl_stop` with one optimiser step a rollout batch", _trainer(_small, kl_stop=0.01), ("kl_stop",),
         "set num_iterations or steps_per_generation higher"),
    Case("checkpoints within a rollout batch",
         _trained(steps_per_generation=2, save_strategy="steps", save_steps=3), ("save_steps = 3",), "set save_steps=4",
         TokenPOError),
    Case("an end within a rollout batch", _trained(steps_per_generation=2, max_steps=5), ("max_steps = 5",),
         "set max_steps=4", TokenPOError),
    Case("`beta` beside a method's own penalty on leaving the reference",
         _trainer(method="lopti", beta=0.1, num_iterations=2), ("TokenPOConfig.beta = 0.1", "lopti"),
         "leave beta at 0", TokenPOError),
    Case("two methods", _trainer(method="dapo", given={"method": "tepo"}),
         ("method='tepo'", "TokenPOConfig.method='dapo'"), "give one", TokenPOError),
    Case("options for a method that is given as a value",
         _trainer(method_options={"high": 0.3}, given={"method": tokenpo.method("dapo")}), ("dapo", "method_options"),
         "leave them out", TokenPOError),
    Case("TRL's asynchronous trainer, by its settings", _asynchronous, ("AsyncGRPOConfig", "TRL"),
         "give a TokenPOConfig"),
    Case("TRL's own settings in place of ours",
         lambda directory: TokenPOTrainer("a/model", even, GRPOConfig(str(directory), use_cpu=True, bf16=False)),
         ("GRPOConfig",), "expected a TokenPOConfig", TokenPOError),
]  # fmt: skip
