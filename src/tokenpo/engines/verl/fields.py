"""What becomes of every key of verl's `algorithm` and `actor_rollout_ref.actor`, as data.

The refusals and the table of docs/verl.md are made of it; verl is not needed to read it. Tests hold the keys to those
of the verl that is installed.
"""

from __future__ import annotations

from typing import Any

# Settings of verl's loss and estimators that say nothing to our objective: (setting, value to leave it at, remedy).
REFUSED: tuple[tuple[str, Any, str], ...] = (
    ("algorithm.adv_estimator", "grpo", "the objective computes the advantage, and reads no critic"),
    ("algorithm.use_kl_in_reward", False, "+algorithm.tokenpo.reference_kl.beta=0.001 puts the divergence in the loss"),
    ("algorithm.use_pf_ppo", False, "the objective sees every rollout"),
    ("algorithm.norm_adv_by_std_in_grpo", True, "choose a method without the deviation, such as dr_grpo"),
    ("algorithm.gamma", 1.0, "no method of ours discounts"),
    ("algorithm.lam", 1.0, "no method of ours discounts"),
    ("critic.enable", False, "no objective of ours reads a critic"),
    ("actor_rollout_ref.actor.policy_loss.loss_mode", "vanilla", "+algorithm.tokenpo.method names the loss"),
    ("actor_rollout_ref.actor.policy_loss.clip_cov_ratio", 0.0002, "it is options.fraction of clip_cov"),
    ("actor_rollout_ref.actor.policy_loss.clip_cov_lb", 1.0, "it is options.cov_low of clip_cov"),
    ("actor_rollout_ref.actor.policy_loss.clip_cov_ub", 5.0, "it is options.cov_high of clip_cov"),
    ("actor_rollout_ref.actor.policy_loss.kl_cov_ratio", 0.0002, "it is options.fraction of kl_cov"),
    ("actor_rollout_ref.actor.policy_loss.ppo_kl_coef", 0.1, "it is options.coef of kl_cov"),
    ("actor_rollout_ref.actor.policy_loss.dro_beta", None, "+algorithm.tokenpo.method names the loss"),
    (
        "actor_rollout_ref.actor.policy_loss.rollout_correction",
        None,
        "+algorithm.tokenpo.correction.level=token weighs",
    ),
    ("actor_rollout_ref.actor.tau_pos", 1.0, "it is options.tau_pos of sapo"),
    ("actor_rollout_ref.actor.tau_neg", 1.05, "it is options.tau_neg of sapo"),
    ("actor_rollout_ref.actor.loss_agg_mode", "token-mean", "the method says how losses are aggregated"),
    ("actor_rollout_ref.actor.loss_scale_factor", None, "the method says how losses are aggregated"),
    ("actor_rollout_ref.actor.clip_ratio", 0.2, "bounds are options of the method, +algorithm.tokenpo.options.low=..."),
    ("actor_rollout_ref.actor.clip_ratio_low", 0.2, "bounds are options of the method"),
    ("actor_rollout_ref.actor.clip_ratio_high", 0.2, "bounds are options of the method"),
    ("actor_rollout_ref.actor.clip_ratio_c", 3.0, "the dual clip is an option of the method"),
    ("actor_rollout_ref.actor.entropy_coeff", 0, "choose a method with an entropy bonus, such as aer"),
    ("actor_rollout_ref.actor.use_kl_loss", False, "+algorithm.tokenpo.reference_kl.beta=0.001 turns the reference on"),
    ("actor_rollout_ref.actor.kl_loss_coef", 0.001, "+algorithm.tokenpo.reference_kl.beta is the coefficient"),
    ("actor_rollout_ref.actor.kl_loss_type", "low_var_kl", "+algorithm.tokenpo.reference_kl.estimator names it"),
    ("actor_rollout_ref.actor.shuffle", False, "the responses of an optimiser step must be countable in the driver"),
    ("distillation.enabled", False, "distillation replaces the loss"),
)

_RATE = "constant, without warm-up, where an objective takes its optimiser steps one by one; else verl's own"
# Keys that the adapter reads or sets.
HONOURED: dict[str, str] = {
    "algorithm.rollout_correction.rollout_is": "becomes `RolloutCorrection` in the objective's weights",
    "algorithm.rollout_correction.rollout_is_threshold": "its bounds; `lo_hi` masks",
    "algorithm.rollout_correction.rollout_is_batch_normalize": "divided by its mean over the rollout batch",
    "algorithm.rollout_correction.rollout_rs": "becomes `Rejection`; what is rejected counts in the denominators, as "
    "in verl's own V1 trainer",
    "algorithm.rollout_correction.rollout_rs_threshold": "its bounds; those of k1 are on 1/ρ",
    "algorithm.rollout_correction.bypass_mode": "the objective reads the sampler's log-probabilities in the place of "
    "the old ones, which verl computes all the same",
    "algorithm.rollout_correction.loss_type": "`reinforce`, with `bypass_mode`: the surrogate becomes A · lp",
    "algorithm.filter_groups.enable": "groups whose rewards are all equal are dropped; refused for methods whose "
    "memory sees all that was drawn",
    "algorithm.filter_groups.metric": "verl compares it within a group",
    "algorithm.filter_groups.max_num_gen_batches": "bound on the generation batches of a step; 0 is 10",
    "actor_rollout_ref.actor.strategy": "`fsdp` or `fsdp2`, others are refused",
    "actor_rollout_ref.actor.ppo_mini_batch_size": "prompts of an optimiser step, over which denominators are counted",
    "actor_rollout_ref.actor.ppo_epochs": "passes over a rollout batch, each of an objective that has several",
    "actor_rollout_ref.actor.calculate_entropy": "switched on where the objective reads the current entropy",
    "actor_rollout_ref.actor.optim.lr_scheduler_type": _RATE,
    "actor_rollout_ref.actor.optim.warmup_style": "verl's old name of it",
    "actor_rollout_ref.actor.optim.lr_warmup_steps": _RATE,
    "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": _RATE,
}

# Keys that act before or after credit and loss, in code of verl's that is left as it is. One that ends with .* stands
# for all below it.
THEIRS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("read by verl only with a key that is refused", (
        "algorithm.kl_penalty", "algorithm.kl_ctrl.*", "algorithm.pf_ppo.*", "algorithm.gdpo_reward_keys",
        "algorithm.gdpo_reward_weights", "actor_rollout_ref.actor.calculate_sum_pi_squared",
    )),
    ("read by nothing in verl 0.9.1", (
        "actor_rollout_ref.actor.use_rollout_log_probs", "actor_rollout_ref.actor.ppo_infer_micro_batch_size_per_gpu",
        "actor_rollout_ref.actor.ppo_infer_max_token_len_per_gpu",
    )),
    ("dynamic sampling", ("algorithm.filter_groups.max_inflight_gen_batches",)),
    ("micro-batches, whose split changes nothing", (
        "actor_rollout_ref.actor.ppo_micro_batch_size", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
        "actor_rollout_ref.actor.use_dynamic_bsz", "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
        "actor_rollout_ref.actor.data_loader_seed",
    )),
    ("optimiser", (
        "actor_rollout_ref.actor.grad_clip", "actor_rollout_ref.actor.optim.optimizer",
        "actor_rollout_ref.actor.optim.optimizer_impl", "actor_rollout_ref.actor.optim.lr",
        "actor_rollout_ref.actor.optim.total_training_steps", "actor_rollout_ref.actor.optim.weight_decay",
        "actor_rollout_ref.actor.optim.betas", "actor_rollout_ref.actor.optim.clip_grad",
        "actor_rollout_ref.actor.optim.min_lr_ratio", "actor_rollout_ref.actor.optim.num_cycles",
        "actor_rollout_ref.actor.optim.zero_indexed_step", "actor_rollout_ref.actor.optim.override_optimizer_config",
    )),
    ("forward pass, memory, processes", (
        "actor_rollout_ref.actor.fsdp_config.*", "actor_rollout_ref.actor.qat.*",
        "actor_rollout_ref.actor.use_torch_compile", "actor_rollout_ref.actor.use_fused_kernels",
        "actor_rollout_ref.actor.use_prefix_grouper", "actor_rollout_ref.actor.use_remove_padding",
        "actor_rollout_ref.actor.freeze_vision_tower", "actor_rollout_ref.actor.ulysses_sequence_parallel_size",
        "actor_rollout_ref.actor.entropy_from_logits_with_chunking",
        "actor_rollout_ref.actor.entropy_from_logits_chunk_size", "actor_rollout_ref.actor.entropy_checkpointing",
        "actor_rollout_ref.actor.pad_to_length",
    )),
    ("checkpoints, profiles", ("actor_rollout_ref.actor.checkpoint.*", "actor_rollout_ref.actor.profiler.*")),
    ("filled by verl", (
        "actor_rollout_ref.actor.rollout_n", "actor_rollout_ref.actor.engine", "actor_rollout_ref.actor.model_config",
        "actor_rollout_ref.actor.global_batch_info",
    )),
)  # fmt: skip
