"""Forms of TRL's loss with the method of each, and settings of TRL and verl that adapters neither refuse nor set.

Nothing of this is read when something trains: docs/trl.md and docs/verl.md show it, and tests compare it with TRL.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tokenpo.hosts.verl.settings import ACTOR

Row = tuple[str, str, str]  # fate, key, words


def _used(names: str, words: str) -> tuple[Row, ...]:
    return tuple(("used", name, words) for name in names.split())


def _theirs(words: str, names: str) -> tuple[Row, ...]:
    return tuple(("TRL's own", name, words) for name in names.split())


def _verls(words: str, names: Mapping[str, str]) -> Iterator[Row]:
    for place, some in names.items():
        yield from (("verl's own", f"{place}.{name}", words) for name in some.split())


@dataclass(frozen=True)
class Translated:
    """One choice of TRL's loss, and the method for it.

    Args:
        theirs: settings of `GRPOConfig` that differ from TRL's defaults.
        apart: how the two differ; empty where they are the same numbers.
    """

    theirs: Mapping[str, Any]
    method: str
    options: Mapping[str, Any]
    apart: str = ""


_RESPONSE = {"importance_sampling_level": "sequence"}
TRANSLATED = (
    Translated({}, "dapo", {"high": 0.2, "dual": None}),
    Translated({"epsilon_high": 0.28, "delta": 10.0}, "dapo", {}),
    Translated({"scale_rewards": "batch"}, "lite_ppo", {"eps": 1e-4}),
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
        "TRL interpolates a quantile of the micro-batch, which keeps as many or one fewer; ours is of the update",
    ),
    Translated(
        {"use_adaptive_entropy": True, "entropy_target": 0.3, "entropy_coef_delta": 1e-3, "entropy_coef_max": 0.05},
        "skywork_entropy", {"target": 0.3, "delta": 1e-3, "largest": 0.05},
        "TRL's gate reads the entropy of the previous update, ours that of the old policy over the rollout batch",
    ),
)  # fmt: skip

# Fields of `TrainingArguments` that transformers has from 5.23 on.
NEWER = (
    "activation_checkpointing",
    "activation_checkpointing_kwargs",
    "dataloader_in_order",
    "dataloader_multiprocessing_context",
)
TRL: tuple[Row, ...] = (
    *_used("beta", "k3 penalty on leaving the reference, in the objective's penalties (`ReferenceKl`)"),
    *_used(
        "use_bias_correction_kl",
        "that penalty times the ratio (`Reweighted`), of the response where the method's is; the penalty of a method's "
        "own `beta` stays without",
    ),
    *_used(
        "sync_ref_model ref_model_mixup_alpha ref_model_sync_steps",
        "the reference moves as TRL moves it; log-probabilities under it are taken with each draw",
    ),
    *_used("num_generations", "rows of a group"),
    *_used(
        "reward_weights",
        "of the sum of rewards; rewards that are None are left out of it. A method that reads each one has weights of "
        "its own, and others are rejected",
    ),
    *_used(
        "mask_truncated_completions",
        "a response without an end counts in its group and teaches nothing; means over responses leave it out, where "
        "TRL counts it as 0",
    ),
    *_used("temperature", "log-probabilities and entropies are taken at it"),
    *_used("per_device_train_batch_size", "rows of a micro-batch"),
    *_used("gradient_accumulation_steps", "micro-batches of an update, over all of which denominators are counted"),
    *_used(
        "steps_per_generation generation_batch_size",
        "micro-batches of a rollout batch, or its rows; token means count the tokens of each update, where TRL spreads "
        "those of the rollout batch evenly",
    ),
    *_used("num_iterations", "times that a rollout batch is trained on; a multiple of the objective's passes"),
    *_used("max_completion_length", "also the constant that `dr_grpo` divides by, which is then rejected without it"),
    *_used(
        "off_policy_mask_threshold",
        "becomes `Drop(Strayed)` in the objective's weights, by the log-probabilities of the engine that sampled where "
        "they are reported; the method `opsm` has it of its own",
    ),
    *_used(
        "vllm_importance_sampling_correction vllm_importance_sampling_mode vllm_importance_sampling_clip_max "
        "vllm_importance_sampling_clip_min",
        "becomes `RolloutCorrection` in the objective's weights; of `vespo` in the weight of its surrogate, and then a "
        "`token_` mode, as TRL itself wants",
    ),
    *_used("vllm_importance_sampling_cap", "TRL's old name of `vllm_importance_sampling_clip_max`"),
    *_theirs(
        "model: `router_aux_loss_coef` adds TRL's auxiliary loss of experts to ours, in TRL's own pass; dropout and "
        "noise that make two passes differ stop the run before its first update",
        "model_init_kwargs trust_remote_code router_aux_loss_coef disable_dropout cast_lm_head_to_fp32",
    ),
    *_theirs(
        "data: rows of a group must arrive together",
        "shuffle_dataset pad_to_multiple_of chat_template_kwargs max_tool_calling_iterations",
    ),
    *_theirs(
        "sampling: the loss is that of the whole distribution, as in TRL, also where `top_p`, `top_k` or `min_p` cut "
        "what is sampled from, unless [`kept_tokens`](#top-p-top-k-and-min-p) is set; "
        "[what changes a probability](#what-is-rejected) is rejected where ratios to vLLM's "
        "log-probabilities are read and with an adaptive temperature; "
        "`generation_kwargs` that contradict a setting always",
        "top_p top_k min_p repetition_penalty generation_kwargs cache_implementation ds3_gather_for_generation "
        "use_transformers_continuous_batching use_transformers_paged transformers_continuous_batching_config",
    ),
    *_theirs(
        "vLLM",
        "use_vllm vllm_mode vllm_model_impl vllm_enable_sleep_mode vllm_structured_outputs_regex vllm_server_base_url "
        "vllm_server_host vllm_server_port vllm_server_timeout vllm_group_port vllm_gpu_memory_utilization "
        "vllm_max_model_length vllm_tensor_parallel_size",
    ),
    *_theirs("evaluation: rows of a group", "num_generations_eval"),
    *_theirs(
        "logs", "log_completions log_multimodal num_completions_to_print log_unique_prompts log_completions_hub_repo"
    ),
    *_theirs(
        "memory and the order of the data, from transformers 5.23 on: a resumed run needs `dataloader_in_order`",
        " ".join(NEWER),
    ),
    *_theirs(
        "and every other field of transformers' `TrainingArguments` (optimiser, data loading, evaluation, checkpoints, "
        "precision, processes, logs, the hub): a number of steps that cuts a rollout batch is rejected; what does not "
        "fit [the head](#the-head) takes TRL's own pass; TRL itself rejects `auto_find_batch_size` and sequence "
        "parallelism",
        "max_steps save_steps eval_steps",
    ),
)

_CORRECTION, _FILTER, _RATE = "algorithm.rollout_correction", "algorithm.filter_groups", f"{ACTOR}.optim"
VERL: tuple[Row, ...] = (
    *_used("critic.cliprange_value", "set to the method's `value_clip`"),
    *_used(f"{_CORRECTION}.rollout_is", "becomes `RolloutCorrection` in the objective's weights"),
    *_used(f"{_CORRECTION}.rollout_is_threshold", "its bounds; `lo_hi` masks"),
    *_used(f"{_CORRECTION}.rollout_is_batch_normalize", "divided by its mean over the rollout batch"),
    *_used(f"{_CORRECTION}.rollout_rs", "becomes `Rejection`; what is rejected counts in the denominators, as in "
              "verl's own V1 trainer"),
    *_used(f"{_CORRECTION}.rollout_rs_threshold", "its bounds; those of k1 are on 1/ρ"),
    *_used(f"{_CORRECTION}.bypass_mode", "the objective reads the sampler's log-probabilities in the place of the "
              "old ones, which verl computes all the same"),
    *_used(f"{_CORRECTION}.loss_type", "`reinforce`, with `bypass_mode`: the surrogate becomes A · lp"),
    *_used(f"{_FILTER}.metric", "verl compares it within a group"),
    *_used(f"{ACTOR}.ppo_mini_batch_size", "prompts of an optimiser step, over which denominators are counted"),
    *_used(f"{ACTOR}.ppo_epochs", "passes over a rollout batch, each of an objective that has several"),
    *_verls("read by verl only with a key that is rejected", {
        "algorithm": "kl_penalty kl_ctrl.* pf_ppo.* gdpo_reward_keys gdpo_reward_weights",
        ACTOR: "calculate_sum_pi_squared",
    }),
    *_verls("read by nothing in verl 0.9.1", {
        ACTOR: "use_rollout_log_probs ppo_infer_micro_batch_size_per_gpu ppo_infer_max_token_len_per_gpu",
    }),
    *_verls("dynamic sampling: verl's V1 trainers read no `max_num_gen_batches`", {
        _FILTER: "max_num_gen_batches max_inflight_gen_batches",
    }),
    *_verls("micro-batches, whose split changes nothing", {
        ACTOR: "ppo_micro_batch_size ppo_micro_batch_size_per_gpu use_dynamic_bsz ppo_max_token_len_per_gpu "
        "data_loader_seed",
    }),
    *_verls("optimiser", {
        ACTOR: "grad_clip",
        _RATE: "optimizer optimizer_impl lr total_training_steps weight_decay betas clip_grad min_lr_ratio num_cycles "
        "zero_indexed_step override_optimizer_config",
    }),
    *_verls("forward pass, memory, processes", {
        ACTOR: "fsdp_config.* qat.* use_torch_compile use_fused_kernels use_prefix_grouper use_remove_padding "
        "freeze_vision_tower entropy_from_logits_with_chunking entropy_from_logits_chunk_size entropy_checkpointing "
        "pad_to_length",
    }),
    *_verls("verl gathers a sequence's log-probabilities and entropies from its processes before the loss is called: "
             "tested with its own function on two processes, not in a run", {ACTOR: "ulysses_sequence_parallel_size"}),
    *_verls("checkpoints, profiles", {ACTOR: "checkpoint.* profiler.*"}),
    *_verls("filled by verl", {ACTOR: "rollout_n engine model_config global_batch_info"}),
)  # fmt: skip
