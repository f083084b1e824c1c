"""What becomes of every field of TRL's `GRPOConfig`, as one table: honoured, refused, or TRL's own. Imports no TRL.

Tests compare the names that TRL adds to transformers' with the installed `GRPOConfig`, and the numbers of what is
honoured with TRL's loss.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...base.errors import TokenPOError, Unsupported

_LOSS = "is a setting of TRL's own loss, which the method replaces"


@dataclass(frozen=True)
class Setting:
    """Fields of `GRPOConfig` with one fate.

    Args:
        fate: "refused" at any value but TRL's default; "honoured" in credit and loss, with TRL's numbers; or "TRL's
            own", which acts before or after credit and loss.
        names: of the fields.
        sentence: the remedy; the meaning; or the subject of the fields, and which values are refused.
        why: a refused value cannot be honoured.
    """

    fate: Literal["refused", "honoured", "TRL's own"]
    names: tuple[str, ...]
    sentence: str
    why: str = _LOSS


def _refused(names: str, remedy: str, why: str = _LOSS) -> Setting:
    return Setting("refused", tuple(names.split()), remedy, why)


def _honoured(names: str, meaning: str) -> Setting:
    return Setting("honoured", tuple(names.split()), meaning)


def _theirs(about: str, names: str) -> Setting:
    return Setting("TRL's own", tuple(names.split()), about)


# Fields of `TrainingArguments` that transformers has from 5.23 on.
NEWER = (
    "activation_checkpointing", "activation_checkpointing_kwargs", "dataloader_in_order",
    "dataloader_multiprocessing_context",
)  # fmt: skip
SETTINGS = (
    _refused("loss_type", "set method to what docs/trl.md lists for it"),
    _refused("epsilon", "give the method its own bounds, for example method_options={'low': 0.1}"),
    _refused("epsilon_high", "give the method its own bounds, for example method_options={'high': 0.28}"),
    _refused("delta", "give the method its dual clip, for example method_options={'dual': 10.0}"),
    _refused("importance_sampling_level", "choose the method 'gspo'"),
    _refused(
        "scale_rewards", "choose a method that scales rewards so; 'dr_grpo' for none, and no method has 'batch'"
    ),
    _refused("multi_objective_aggregation", "choose the method 'gdpo' for 'normalize_then_sum'"),
    _refused("top_entropy_quantile", "choose the method 'forking_tokens'"),
    _refused("entropy_coef", "add core.parts.EntropyBonus to a method's penalties and hand the value over as method="),
    _refused("use_adaptive_entropy", "choose the method 'skywork_entropy'"),
    _refused("entropy_target", "give method_options={'target': ...} to the method 'skywork_entropy'"),
    _refused("entropy_coef_delta", "give method_options={'delta': ...} to the method 'skywork_entropy'"),
    _refused("entropy_coef_max", "give method_options={'largest': ...} to the method 'skywork_entropy'"),
    _refused("entropy_coef_min", "choose the method 'skywork_entropy', whose coefficient goes down to 0"),
    _refused("sapo_temperature_neg", "give method_options={'tau_neg': ...} to the method 'sapo'"),
    _refused("sapo_temperature_pos", "give method_options={'tau_pos': ...} to the method 'sapo'"),
    _refused("vespo_k_pos", "give method_options={'k_pos': ...} to the method 'vespo'"),
    _refused("vespo_lambda_pos", "give method_options={'lambda_pos': ...} to the method 'vespo'"),
    _refused("vespo_k_neg", "give method_options={'k_neg': ...} to the method 'vespo'"),
    _refused("vespo_lambda_neg", "give method_options={'lambda_neg': ...} to the method 'vespo'"),
    _refused(
        "restore_callback_states_from_checkpoint",
        "resume without it: the method's own numbers are restored all the same",
        "would replace the callback that holds the run's records",
    ),
    _honoured("beta", "k3 penalty on leaving the reference, in the objective's penalties (`ReferenceKl`)"),
    _honoured(
        "use_bias_correction_kl",
        "that penalty times the ratio (`Reweighted`), of the response where the method's is; the penalty of a method's "
        "own `beta` stays without",
    ),
    _honoured(
        "sync_ref_model ref_model_mixup_alpha ref_model_sync_steps",
        "the reference moves as TRL moves it; log-probabilities under it are taken with each draw",
    ),
    _honoured("num_generations", "rows of a group"),
    _honoured(
        "reward_weights",
        "of the sum of rewards; rewards that are None are left out of it. A method that reads each one has weights of "
        "its own, and others are refused",
    ),
    _honoured(
        "mask_truncated_completions",
        "a response without an end counts in its group and teaches nothing; means over responses leave it out, where "
        "TRL counts it as 0",
    ),
    _honoured("temperature", "log-probabilities and entropies are taken at it"),
    _honoured("per_device_train_batch_size", "rows of a micro-batch"),
    _honoured(
        "gradient_accumulation_steps", "micro-batches of an update, over all of which denominators are counted"
    ),
    _honoured(
        "steps_per_generation generation_batch_size",
        "micro-batches of a rollout batch, or its rows; token means count the tokens of each update, where TRL spreads "
        "those of the rollout batch evenly",
    ),
    _honoured(
        "num_iterations", "times that a rollout batch is trained on; a multiple of the objective's passes"
    ),
    _honoured(
        "max_completion_length", "also the constant that `dr_grpo` divides by, which is then refused without it"
    ),
    _honoured(
        "off_policy_mask_threshold",
        "becomes `Drop(Strayed)` in the objective's weights, by the log-probabilities of the engine that sampled where "
        "they are reported; the method `opsm` has it of its own",
    ),
    _honoured(
        "vllm_importance_sampling_correction vllm_importance_sampling_mode vllm_importance_sampling_clip_max "
        "vllm_importance_sampling_clip_min",
        "becomes `RolloutCorrection` in the objective's weights; of `vespo` in the weight of its surrogate, and then a "
        "`token_` mode, as TRL itself wants",
    ),
    _honoured("vllm_importance_sampling_cap", "TRL's old name of `vllm_importance_sampling_clip_max`"),
    _theirs(
        "model: `router_aux_loss_coef` above 0 is refused; dropout and noise that make two passes differ stop the run "
        "before its first update",
        "model_init_kwargs trust_remote_code router_aux_loss_coef disable_dropout cast_lm_head_to_fp32",
    ),
    _theirs(
        "data: rows of a group must arrive together, which is checked",
        "shuffle_dataset pad_to_multiple_of chat_template_kwargs max_tool_calling_iterations",
    ),
    _theirs(
        "sampling: the loss is that of the whole distribution, as in TRL, also where `top_p`, `top_k` or `min_p` cut "
        "what is sampled from; these are refused where ratios to vLLM's log-probabilities are read, which are of what "
        "is kept; with an adaptive temperature several are refused ([below](#what-is-refused)), and "
        "`generation_kwargs` that contradict a setting always",
        "top_p top_k min_p repetition_penalty generation_kwargs cache_implementation ds3_gather_for_generation "
        "use_transformers_continuous_batching use_transformers_paged transformers_continuous_batching_config",
    ),
    _theirs(
        "vLLM",
        "use_vllm vllm_mode vllm_model_impl vllm_enable_sleep_mode vllm_structured_outputs_regex vllm_server_base_url "
        "vllm_server_host vllm_server_port vllm_server_timeout vllm_group_port vllm_gpu_memory_utilization "
        "vllm_max_model_length vllm_tensor_parallel_size",
    ),
    _theirs("evaluation: rows of a group", "num_generations_eval"),
    _theirs(
        "logs: `log_completions` is refused with `dynamic_sampling`",
        "log_completions log_multimodal num_completions_to_print log_unique_prompts log_completions_hub_repo",
    ),
    _theirs(
        "memory and the order of the data, from transformers 5.23 on: a resumed run needs `dataloader_in_order`",
        " ".join(NEWER),
    ),
    _theirs(
        "and every other field of transformers' `TrainingArguments` (optimiser, data loading, evaluation, checkpoints, "
        "precision, processes, logs, the hub): a number of steps that cuts a rollout batch is refused; what does not "
        "fit [the head](#the-head) takes TRL's own pass; TRL itself refuses `auto_find_batch_size` and sequence "
        "parallelism",
        "max_steps save_steps eval_steps",
    ),
)  # fmt: skip


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
        "TRL's gate reads the entropy of the update before, ours the old policy's over the rollout batch",
    ),
)  # fmt: skip

_BOUNDS = {"epsilon": "low", "epsilon_high": "high"}
_KIND = ("loss_type", "importance_sampling_level", "scale_rewards")
# Values of _KIND -> the method with that loss, TRL's field -> option, options beside. What differs is left out.
_LOSSES: dict[tuple[str, ...], tuple[str, dict[str, str], dict[str, Any]]] = {
    ("dapo", "token", "group"): ("dapo", _BOUNDS | {"delta": "dual"}, {}),
    ("grpo", "token", "group"): ("grpo", _BOUNDS, {}),
    ("grpo", "sequence", "group"): ("gspo", _BOUNDS, {}),
    ("dr_grpo", "token", "none"): ("dr_grpo", _BOUNDS, {}),
    ("cispo", "token", "group"): ("cispo", {"epsilon_high": "high"}, {"absolute": True}),
    ("sapo", "token", "group"): ("sapo", {f"sapo_temperature_{way}": f"tau_{way}" for way in ("pos", "neg")}, {}),
    ("luspo", "sequence", "group"): ("luspo", _BOUNDS, {}),
    ("vespo", "token", "group"): (
        "vespo", {f"vespo_{name}_{way}": f"{name}_{way}" for name in ("k", "lambda") for way in ("pos", "neg")}, {},
    ),
}  # fmt: skip


def named(args: Any) -> tuple[str, dict[str, Any], set[str]]:
    """The method of these settings, its options, and the fields of TRL's loss that are among them.

    Without a `method` it is the one that computes TRL's own loss; others stay at TRL's defaults.
    """
    given = dict(args.method_options or {})
    if args.method is not None:
        return args.method, given, set()
    kind = tuple(getattr(args, name) for name in _KIND)
    method, fields, beside = _LOSSES.get(kind, _LOSSES["dapo", "token", "group"])
    options = {option: getattr(args, name) for name, option in fields.items()}
    if options.get("high", 0) is None:
        options["high"] = args.epsilon  # as TRL does
    return method, options | beside | given, {*fields, *(_KIND if kind in _LOSSES else ())}


# vllm_importance_sampling_mode -> whether it weighs by response, and whether weights out of bounds become 0.
CORRECTIONS = {
    "token_truncate": (False, False),
    "token_mask": (False, True),
    "sequence_truncate": (True, False),
    "sequence_mask": (True, True),
}
# Keys of generation_kwargs that TRL takes in place of a setting -> that setting.
OVERRIDING = {
    **{name: name for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")},
    "max_new_tokens": "max_completion_length",
    "max_tokens": "max_completion_length",
}
# Keys that could make every response of a group the same -> the value that does not.
SAMPLING = {"do_sample": True, "num_beams": 1}
# Keys that change no probability in vLLM.
_HARMLESS = ("seed", "stop", "stop_token_ids", "include_stop_str_in_output", "extra_args", "vllm_xargs")


def remedy(setting: Setting, name: str, value: Any) -> str:
    """What to write in place of a refused field at this value, in a phrase."""
    if (name, value) == ("scale_rewards", "none"):
        return "set method='dr_grpo', which divides by no deviation"
    if name != "loss_type":
        return setting.sentence
    for row in TRANSLATED:
        if row.theirs.get("loss_type", "dapo") == value:
            # Options that other fields ask for are left out.
            options = f", method_options={dict(row.options)}" if row.options and len(row.theirs) == 1 else ""
            return f"set method={row.method!r}{options}"
    return "name a method, method='grpo' for example"


def require_untouched(args: Any, defaults: Mapping[str, Any], taken: Collection[str] = ()) -> None:
    """Raises Unsupported where a refused field is set that the method's options have not `taken`."""
    for setting in (one for one in SETTINGS if one.fate == "refused"):
        for name in setting.names:
            value, usual = getattr(args, name), defaults[name]
            if value != usual and name not in taken:
                raise Unsupported(
                    f"TokenPOConfig.{name} = {value!r} {setting.why}: leave it at {usual!r} and "
                    f"{remedy(setting, name, value)}"
                )


def require(args: Any, defaults: Mapping[str, Any]) -> None:
    """Raises Unsupported where a refused field is set, or generation_kwargs contradict a setting.

    Args:
        defaults: of the fields of `GRPOConfig`.
    """
    require_untouched(args, defaults, named(args)[2])
    keywords: Any = args.generation_kwargs or {}
    for key, name in OVERRIDING.items():
        setting = getattr(args, name)
        if key in keywords and keywords[key] != setting:
            raise Unsupported(
                f"TokenPOConfig.generation_kwargs[{key!r}] = {keywords[key]!r} is not the {name} = {setting!r} that "
                f"the trainer goes by: leave it out, and set TokenPOConfig.{name}"
            )
    for key, usual in SAMPLING.items():
        if keywords.get(key, usual) != usual:
            raise Unsupported(
                f"TokenPOConfig.generation_kwargs[{key!r}] = {keywords[key]!r} draws no samples of the policy, so that "
                f"a group has nothing to compare: leave it at {usual!r}"
            )
    if (mode := args.vllm_importance_sampling_mode) not in CORRECTIONS:
        raise TokenPOError(
            f"TokenPOConfig.vllm_importance_sampling_mode = {mode!r} must be one of {', '.join(CORRECTIONS)}"
        )


def require_steps_to_hold(trainer: Any) -> None:
    """Raises Unsupported where a KL is to be held, and TRL's optimiser steps cannot be scaled or left out."""
    args = trainer.args
    if args.kl_hold() is None:
        return
    optim = str(getattr(args.optim, "value", args.optim))
    name = "kl_stop" if args.kl_target is None else "kl_target"
    for refused, why in (
        (
            trainer.is_deepspeed_enabled,
            "DeepSpeed makes them within its backward pass: train without it, with FSDP for instance",
        ),
        (
            trainer.accelerator.mixed_precision == "fp16",
            "the loss scale of fp16 wants the gradients of every step: set bf16=True",
        ),
        (
            optim.endswith("_layerwise") or "lomo" in optim,
            f"optim = {optim!r} makes them within the backward pass: set optim='adamw_torch'",
        ),
        (
            args.kl_target is None and trainer.cycle.updates == 1,
            "a rollout batch of one has none to leave out: set num_iterations or steps_per_generation higher",
        ),
    ):
        if refused:
            raise Unsupported(
                f"TokenPOConfig.{name} = {getattr(args, name)} leaves out optimiser steps of TRL's, and {why}"
            )


def cut(args: Any) -> tuple[str, str] | None:
    """The setting that excludes tokens of the vocabulary, and what to do about it."""
    for name, usual in (("top_p", (1.0,)), ("top_k", (0, -1, None)), ("min_p", (0.0, None))):
        if (value := getattr(args, name)) not in usual:
            return f"{name} = {value}", f"leave it at {usual[0]}"
    return None


def contradicted(args: Any) -> tuple[str, str] | None:
    """The setting under which vLLM samples from other logits than the trainer sees, and what to do about it."""
    if found := cut(args):
        return found
    if args.vllm_structured_outputs_regex is not None:
        return "vllm_structured_outputs_regex", "leave it out"
    changed = next((name for name in args.generation_kwargs or {} if name not in _HARMLESS), None)
    return None if changed is None else (f"generation_kwargs[{changed!r}]", "leave it out")
