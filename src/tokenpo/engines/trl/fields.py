"""What becomes of every field of TRL's `GRPOConfig`, and what to take for the settings of its loss, as data.

The refusals and the tables of docs/trl.md are made of it; neither TRL nor torch is needed to read it. Tests hold the
names to the `GRPOConfig` that is installed, and what is called the same to TRL's own loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Translated:
    """One choice of TRL's loss.

    Args:
        theirs: settings of `GRPOConfig` that differ from TRL's defaults.
        method: what to take here.
        options: of the method.
        apart: where the two are not the same numbers, how they differ; empty where they are.
    """

    theirs: Mapping[str, Any]
    method: str
    options: Mapping[str, Any]
    apart: str = ""


_RESPONSE = {"importance_sampling_level": "sequence"}
TRANSLATED = (
    Translated({}, "dapo", {"high": 0.2, "dual": None}),
    Translated({"epsilon_high": 0.28, "delta": 10.0}, "dapo", {}),
    Translated({"loss_type": "grpo"}, "grpo", {}),
    Translated({"loss_type": "grpo", "epsilon": 0.1, "epsilon_high": 0.4}, "grpo", {"low": 0.1, "high": 0.4}),
    Translated({"loss_type": "grpo", **_RESPONSE, "epsilon": 3e-4, "epsilon_high": 4e-4}, "gspo", {}),
    Translated({"loss_type": "dr_grpo", "scale_rewards": "none"}, "dr_grpo", {}),
    Translated(
        {"loss_type": "bnpo"}, "dapo", {"high": 0.2, "dual": None},
        "TRL's depends on how an update is split into micro-batches, ours does not: the same where one is the whole",
    ),
    Translated({"loss_type": "cispo", "epsilon_high": 5.0}, "cispo", {"high": 5.0, "absolute": True}),
    Translated(
        {"loss_type": "sapo", "sapo_temperature_pos": 0.9, "sapo_temperature_neg": 1.2}, "sapo",
        {"tau_pos": 0.9, "tau_neg": 1.2},
    ),
    Translated({"loss_type": "luspo", **_RESPONSE}, "luspo", {}),
    Translated(
        {"loss_type": "vespo", "vespo_k_pos": 1.5, "vespo_lambda_pos": 2.0, "vespo_k_neg": 2.5,
         "vespo_lambda_neg": 1.8},
        "vespo", {"k_pos": 1.5, "lambda_pos": 2.0, "k_neg": 2.5, "lambda_neg": 1.8},
    ),
    Translated(
        {"epsilon_high": 0.28, "top_entropy_quantile": 0.2}, "forking_tokens", {"fraction": 0.2, "entropy": "current"},
        "TRL takes the quantile of a micro-batch and interpolates; ours is the nearest rank over the update",
    ),
    Translated(
        {"use_adaptive_entropy": True, "entropy_target": 0.3, "entropy_coef_delta": 1e-3, "entropy_coef_max": 0.05},
        "skywork_entropy", {"target": 0.3, "delta": 1e-3, "largest": 0.05},
        "TRL's gate reads the entropy of the update before, ours the old policy's over the rollout batch",
    ),
)  # fmt: skip


def _method_of(loss_type: str) -> str:
    """What to write for one of TRL's losses; nothing for a name that TRL does not know either."""
    for row in TRANSLATED:
        if row.theirs.get("loss_type", "dapo") == loss_type:
            # Not those that say what another field says.
            options = f", method_options={dict(row.options)}" if row.options and len(row.theirs) == 1 else ""
            return f"set method={row.method!r}{options}"
    return "name a method, method='grpo' for example"


def remedy(name: str, value: Any) -> str:
    """What says the same as a refused field at this value, in a phrase."""
    if name == "loss_type":
        return _method_of(value)
    if (name, value) == ("scale_rewards", "none"):
        return "set method='dr_grpo', which divides by no deviation"
    return REFUSED[name]


# Settings of TRL's own loss, which a method replaces; any value but TRL's default is refused. What to do instead.
REFUSED: dict[str, str] = {
    "loss_type": "set method to what docs/trl.md lists for it",
    "epsilon": "give the method its own bounds, for example method_options={'low': 0.1}",
    "epsilon_high": "give the method its own bounds, for example method_options={'high': 0.28}",
    "delta": "give the method its dual clip, for example method_options={'dual': 10.0}",
    "importance_sampling_level": "choose the method 'gspo'",
    "scale_rewards": "choose a method that scales rewards so; 'dr_grpo' for none, and no method has 'batch'",
    "multi_objective_aggregation": "choose the method 'gdpo' for 'normalize_then_sum'",
    "top_entropy_quantile": "choose the method 'forking_tokens'",
    "entropy_coef": "add core.parts.EntropyBonus to a method's penalties and hand the value over as method=",
    "use_adaptive_entropy": "choose the method 'skywork_entropy'",
    "entropy_target": "give method_options={'target': ...} to the method 'skywork_entropy'",
    "entropy_coef_delta": "give method_options={'delta': ...} to the method 'skywork_entropy'",
    "entropy_coef_max": "give method_options={'largest': ...} to the method 'skywork_entropy'",
    "entropy_coef_min": "choose the method 'skywork_entropy', whose coefficient goes down to 0",
    "sapo_temperature_neg": "give method_options={'tau_neg': ...} to the method 'sapo'",
    "sapo_temperature_pos": "give method_options={'tau_pos': ...} to the method 'sapo'",
    "vespo_k_pos": "give method_options={'k_pos': ...} to the method 'vespo'",
    "vespo_lambda_pos": "give method_options={'lambda_pos': ...} to the method 'vespo'",
    "vespo_k_neg": "give method_options={'k_neg': ...} to the method 'vespo'",
    "vespo_lambda_neg": "give method_options={'lambda_neg': ...} to the method 'vespo'",
}

_CORRECTION = "becomes `RolloutCorrection` in the objective's weights"
# Fields that reach credit or loss, with the same numbers as in TRL's own loss.
HONOURED: dict[str, str] = {
    "beta": "k3 penalty on leaving the reference, in the objective's penalties (`ReferenceKl`)",
    "use_bias_correction_kl": "that penalty times the ratio (`Reweighted`), of the response where the method's is; the "
    "penalty of a method's own `beta` stays without",
    "sync_ref_model": "the reference moves as TRL moves it; log-probabilities under it are taken with each draw",
    "ref_model_mixup_alpha": "with `sync_ref_model`",
    "ref_model_sync_steps": "with `sync_ref_model`",
    "num_generations": "rows of a group",
    "reward_weights": "of the sum of rewards; rewards that are None are left out of it. A method that reads each one "
    "has weights of its own, and others are refused",
    "mask_truncated_completions": "a response without an end counts in its group and teaches nothing; means over "
    "responses leave it out, where TRL counts it as 0",
    "temperature": "log-probabilities and entropies are taken at it",
    "per_device_train_batch_size": "rows of a micro-batch",
    "gradient_accumulation_steps": "micro-batches of an update, over all of which denominators are counted",
    "steps_per_generation": "micro-batches of a rollout batch; token means count the tokens of each update, where TRL "
    "spreads those of the rollout batch evenly",
    "generation_batch_size": "the same in rows",
    "num_iterations": "times that a rollout batch is trained on; a multiple of the objective's passes",
    "max_completion_length": "also the constant that `dr_grpo` divides by, which is then refused without it",
    "off_policy_mask_threshold": "becomes `Drop(Strayed)` in the objective's weights, by the log-probabilities of the "
    "engine that sampled where they are reported; the method `opsm` has it of its own",
    "vllm_importance_sampling_correction": f"{_CORRECTION}, of `vespo` in the weight of its surrogate",
    "vllm_importance_sampling_mode": f"{_CORRECTION}; of `vespo` a `token_` one, as TRL itself wants",
    "vllm_importance_sampling_clip_max": _CORRECTION,
    "vllm_importance_sampling_clip_min": _CORRECTION,
    "vllm_importance_sampling_cap": "TRL's old name of `vllm_importance_sampling_clip_max`",
}

# Fields that act before or after credit and loss, in code of TRL's and transformers' that is left as it is. Where some
# of their values are refused, that is said.
THEIRS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("model", "`router_aux_loss_coef` above 0 is refused; dropout and noise that make two passes differ stop the run "
     "before its first update", (
        "model_init_kwargs", "trust_remote_code", "router_aux_loss_coef", "disable_dropout", "cast_lm_head_to_fp32",
        "neftune_noise_alpha", "use_cache", "use_liger_kernel", "liger_kernel_config",
    )),
    ("data", "rows of a group must arrive together, which is checked", (
        "remove_unused_columns", "shuffle_dataset", "pad_to_multiple_of", "chat_template_kwargs",
        "max_tool_calling_iterations", "dataloader_drop_last", "dataloader_num_workers", "dataloader_pin_memory",
        "dataloader_persistent_workers", "dataloader_prefetch_factor", "data_seed", "train_sampling_strategy",
        "length_column_name", "label_names", "accelerator_config", "ignore_data_skip",
    )),
    ("sampling", "the loss is that of the whole distribution, as in TRL, also where `top_p`, `top_k` or `min_p` cut "
     "what is sampled from; these are refused where ratios to vLLM's log-probabilities are read, which are of what is "
     "kept; with an adaptive temperature several are refused ([below](#what-is-refused)), and `generation_kwargs` "
     "that contradict a setting always", (
        "top_p", "top_k", "min_p", "repetition_penalty", "generation_kwargs", "cache_implementation",
        "ds3_gather_for_generation", "use_transformers_continuous_batching", "use_transformers_paged",
        "transformers_continuous_batching_config",
    )),
    ("vLLM", "", (
        "use_vllm", "vllm_mode", "vllm_model_impl", "vllm_enable_sleep_mode", "vllm_structured_outputs_regex",
        "vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_server_timeout", "vllm_group_port",
        "vllm_gpu_memory_utilization", "vllm_max_model_length", "vllm_tensor_parallel_size",
    )),
    ("optimiser", "", (
        "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio", "optim",
        "optim_args", "optim_target_modules", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon",
        "max_grad_norm",
    )),
    ("length of the run, checkpoints", "`max_steps`, `save_steps` and `eval_steps` that cut a rollout batch are "
     "refused, and so is `restore_callback_states_from_checkpoint`", (
        "max_steps", "num_train_epochs", "save_strategy", "save_steps", "save_total_limit", "save_only_model",
        "save_on_each_node", "enable_jit_checkpoint", "load_best_model_at_end", "metric_for_best_model",
        "greater_is_better", "resume_from_checkpoint", "restore_callback_states_from_checkpoint", "output_dir", "seed",
        "full_determinism",
    )),
    ("evaluation", "`num_generations_eval` rows are a group of an evaluation", (
        "eval_strategy", "eval_steps", "eval_delay", "eval_on_start", "per_device_eval_batch_size",
        "num_generations_eval", "prediction_loss_only", "eval_do_concat_batches", "eval_use_gather_object",
        "eval_accumulation_steps", "include_for_metrics", "batch_eval_metrics", "do_train", "do_eval", "do_predict",
        "bf16_full_eval", "fp16_full_eval",
    )),
    ("precision, memory, processes", "what does not fit [the head](#the-head) takes TRL's own pass; TRL itself refuses "
     "`auto_find_batch_size` and sequence parallelism", (
        "bf16", "fp16", "tf32", "gradient_checkpointing", "gradient_checkpointing_kwargs", "torch_compile",
        "torch_compile_backend", "torch_compile_mode", "torch_empty_cache_steps", "auto_find_batch_size", "use_cpu",
        "parallelism_config", "fsdp", "fsdp_config", "deepspeed", "ddp_find_unused_parameters", "ddp_bucket_cap_mb",
        "ddp_broadcast_buffers", "ddp_static_graph", "ddp_backend", "ddp_timeout", "local_rank",
    )),
    ("logs", "`log_completions` is refused with `dynamic_sampling`", (
        "log_completions", "log_multimodal", "num_completions_to_print", "log_unique_prompts",
        "log_completions_hub_repo", "logging_strategy", "logging_steps", "logging_first_step", "logging_dir",
        "log_on_each_node", "logging_nan_inf_filter", "include_num_input_tokens_seen", "log_level",
        "log_level_replica", "disable_tqdm", "report_to", "run_name", "project", "trackio_space_id",
        "trackio_bucket_id", "trackio_static_space_id", "debug", "skip_memory_metrics",
    )),
    ("the hub", "", (
        "push_to_hub", "hub_token", "hub_private_repo", "hub_model_id", "hub_strategy", "hub_always_push",
        "hub_revision",
    )),
    ("without effect on this loss, in TRL too", "", ("label_smoothing_factor", "average_tokens_across_devices")),
)  # fmt: skip

KNOWN = frozenset({*REFUSED, *HONOURED, *(name for _, _, names in THEIRS for name in names)})
