"""The fields of TRL's `GRPOConfig` that are refused, and the method for each form of TRL's loss. Imports no TRL."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.head.kept import Cut

_LOSS = "is a setting of TRL's own loss, which the method replaces"


@dataclass(frozen=True)
class Refused:
    """A field of `GRPOConfig` that is refused at any value but TRL's default; `why` is the predicate of a sentence."""

    name: str
    remedy: str
    why: str = _LOSS


REFUSED = (
    Refused("loss_type", "set method to the one that docs/trl.md lists for it"),
    Refused("epsilon", "give the method its own bounds, for example method_options={'low': 0.1}"),
    Refused("epsilon_high", "give the method its own bounds, for example method_options={'high': 0.28}"),
    Refused("delta", "give the method a dual clip above 1 + high, for example method_options={'dual': 10.0}"),
    Refused("importance_sampling_level", "choose the method 'gspo'"),
    Refused("scale_rewards", "choose a method that scales rewards so: 'dr_grpo' for 'none', 'lite_ppo' for 'batch'"),
    Refused("multi_objective_aggregation", "choose the method 'gdpo' for 'normalize_then_sum'"),
    Refused("top_entropy_quantile", "choose the method 'forking_tokens'"),
    Refused("entropy_coef", "add tokenpo.parts.EntropyBonus to a method's penalties and give the objective as method="),
    Refused("use_adaptive_entropy", "choose the method 'skywork_entropy'"),
    Refused("entropy_target", "give method_options={'target': ...} to the method 'skywork_entropy'"),
    Refused("entropy_coef_delta", "give method_options={'delta': ...} to the method 'skywork_entropy'"),
    Refused("entropy_coef_max", "give method_options={'largest': ...} to the method 'skywork_entropy'"),
    Refused("entropy_coef_min", "choose the method 'skywork_entropy', whose coefficient goes down to 0"),
    Refused("sapo_temperature_neg", "give method_options={'tau_neg': ...} to the method 'sapo'"),
    Refused("sapo_temperature_pos", "give method_options={'tau_pos': ...} to the method 'sapo'"),
    Refused("vespo_k_pos", "give method_options={'k_pos': ...} to the method 'vespo'"),
    Refused("vespo_lambda_pos", "give method_options={'lambda_pos': ...} to the method 'vespo'"),
    Refused("vespo_k_neg", "give method_options={'k_neg': ...} to the method 'vespo'"),
    Refused("vespo_lambda_neg", "give method_options={'lambda_neg': ...} to the method 'vespo'"),
    Refused(
        "restore_callback_states_from_checkpoint",
        "resume without it: the method's own numbers are restored all the same",
        "would replace the callback that holds the run's records",
    ),
)


_BOUNDS = {"epsilon": "low", "epsilon_high": "high"}
_KIND = ("loss_type", "importance_sampling_level", "scale_rewards")
# Values of _KIND -> (method with that loss, TRL's field -> its option, further options). Only exact matches.
_LOSSES: dict[tuple[str, ...], tuple[str, dict[str, str], dict[str, Any]]] = {
    ("dapo", "token", "group"): ("dapo", _BOUNDS | {"delta": "dual"}, {}),
    ("dapo", "token", "batch"): ("lite_ppo", _BOUNDS | {"delta": "dual"}, {"eps": 1e-4}),
    ("grpo", "token", "group"): ("grpo", _BOUNDS, {}),
    ("grpo", "sequence", "group"): ("gspo", _BOUNDS, {}),
    ("dr_grpo", "token", "none"): ("dr_grpo", _BOUNDS, {}),
    ("cispo", "token", "group"): ("cispo", {"epsilon_high": "high"}, {"absolute": True}),
    ("sapo", "token", "group"): ("sapo", {f"sapo_temperature_{way}": f"tau_{way}" for way in ("pos", "neg")}, {}),
    ("luspo", "sequence", "group"): ("luspo", _BOUNDS, {}),
    ("vespo", "token", "group"): (
        "vespo",
        {f"vespo_{name}_{way}": f"{name}_{way}" for name in ("k", "lambda") for way in ("pos", "neg")},
        {},
    ),
}


def named(args: Any) -> tuple[str, dict[str, Any], set[str]]:
    """(method, its options, fields of TRL's loss that became options); without a `method` that of TRL's own loss."""
    given = dict(args.method_options or {})
    if args.method is not None:
        return args.method, given, set()
    kind = tuple(getattr(args, name) for name in _KIND)
    method, fields, beside = _LOSSES.get(kind, _LOSSES["dapo", "token", "group"])
    options = {option: getattr(args, name) for name, option in fields.items()}
    if options.get("high", 0) is None:
        options["high"] = args.epsilon  # as TRL does
    options |= beside | given
    taken = {*fields, *(_KIND if kind in _LOSSES else ())}
    if args.delta is not None and args.delta <= 1 + options.get("high", 0):
        taken.discard("delta")  # TRL holds tokens with a positive advantage there too, which no dual clip does
    return method, options, taken


# vllm_importance_sampling_mode -> (one weight per response, weights out of bounds become 0).
CORRECTIONS = {
    "token_truncate": (False, False),
    "token_mask": (False, True),
    "sequence_truncate": (True, False),
    "sequence_mask": (True, True),
}
# Key of generation_kwargs -> the setting that it overrides in TRL.
OVERRIDING = {
    **{name: name for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")},
    "max_new_tokens": "max_completion_length",
    "max_tokens": "max_completion_length",
}
# Settings that can make all responses of a group equal -> the allowed value.
SAMPLING = {"do_sample": True, "num_beams": 1}
# Settings of transformers or vLLM that change a model's probabilities -> values at which they do not; empty and None
# never do. The first group cuts the distribution that is sampled from, the second changes the logits before it.
_CUTS: dict[str, tuple[Any, ...]] = {
    "top_p": (1.0,), "top_k": (0, -1), "min_p": (0.0,), "typical_p": (1.0,), "top_h": (1.0,), "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
}  # fmt: skip
_LOGITS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("repetition_penalty", "encoder_repetition_penalty", "guidance_scale"), (1.0,)),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "penalty_alpha", "diversity_penalty"), (0.0,)),
    **dict.fromkeys(("min_tokens", "min_length", "min_new_tokens"), (0,)),
    **dict.fromkeys(("no_repeat_ngram_size", "encoder_no_repeat_ngram_size"), (0,)),
    **dict.fromkeys(
        "bad_words bad_words_ids logit_bias sequence_bias suppress_tokens begin_suppress_tokens allowed_token_ids "
        "structured_outputs vllm_structured_outputs_regex forced_bos_token_id forced_eos_token_id force_words_ids "
        "constraints exponential_decay_length_penalty watermarking_config dola_layers".split(),
        (),
    ),
}
CHANGING = _CUTS | _LOGITS
# Keys that change no probability in vLLM.
_HARMLESS = {"stop", "stop_token_ids", "include_stop_str_in_output", "extra_args", "vllm_xargs"}


def _neutral(name: str, value: Any) -> bool:
    empty = isinstance(value, str | list | tuple | dict) and not value
    return value is None or empty or value in CHANGING.get(name, ())


def contradicted(args: Any, *, cuts: bool = True) -> Iterator[tuple[str, str]]:
    """Yields each setting under which other probabilities than the model's are sampled from, and its remedy."""
    for name in CHANGING if cuts else _LOGITS:
        if not _neutral(name, value := getattr(args, name, None)):
            usual = next(iter(CHANGING[name]), None)
            yield f"{name} = {value!r}", f"leave it at {usual}"
    for name, value in (args.generation_kwargs or {}).items():
        if not _neutral(name, value) and name not in _HARMLESS | {*OVERRIDING} and (cuts or name not in _CUTS):
            yield f"generation_kwargs[{name!r}] = {value!r}", "leave it out"


def cut_of(args: Any) -> Cut:
    """The tokens that TRL's settings let a sampler choose."""
    return Cut(args.top_p, max(args.top_k, 0), args.min_p or 0.0)


def unasked(theirs: Any, asked: Any) -> Iterator[str]:
    """Yields a sentence for each setting of a model's generation config that changes what TRL samples, unasked.

    `asked` is the config that TRL makes of its settings; what is None there, transformers takes from the model.
    """
    for name, usual in (CHANGING | {name: (value,) for name, value in SAMPLING.items()}).items():
        value = getattr(theirs, name, None)
        if getattr(asked, name, None) is None and value not in usual and not _neutral(name, value):
            ask = "" if name in SAMPLING else f", or ask for it with generation_kwargs={{{name!r}: {value!r}}}"
            yield (
                f"the model's generation_config.json has {name} = {value!r}, so that TRL would not sample the policy "
                f"that is trained: remove it there{ask}"
            )


def touched(args: Any, defaults: Mapping[str, Any], taken: Collection[str] = ()) -> Iterator[str]:
    """Yields a sentence for each refused field that is set, unless it is in `taken`, the fields that became options."""
    for one in REFUSED:
        value, default = getattr(args, one.name), defaults[one.name]
        if value != default and one.name not in taken:
            yield f"TokenPOConfig.{one.name} = {value!r} {one.why}: leave it at {default!r} and {one.remedy}"


def _keywords(args: Any, defaults: Mapping[str, Any]) -> Iterator[str]:
    keywords: Any = args.generation_kwargs or {}
    for key, name in OVERRIDING.items():
        setting = getattr(args, name)
        if key in keywords and keywords[key] != setting:
            yield (
                f"TokenPOConfig.generation_kwargs[{key!r}] = {keywords[key]!r} is not the {name} = {setting!r} that "
                f"the trainer goes by: leave it out, and set TokenPOConfig.{name}"
            )
    for key, usual in SAMPLING.items():
        if keywords.get(key, usual) != usual:
            yield (
                f"TokenPOConfig.generation_kwargs[{key!r}] = {keywords[key]!r} draws no samples of the policy, so that "
                f"a group has nothing to compare: leave it at {usual!r}"
            )
    if (seed := keywords.get("seed")) is not None and args.use_vllm:
        yield (
            f"TokenPOConfig.generation_kwargs['seed'] = {seed!r} gives every request of vLLM the same random numbers, "
            "so that the responses to a prompt are copies: leave it out"
        )


def _ranges(args: Any, defaults: Mapping[str, Any]) -> Iterator[str]:
    if (mode := args.vllm_importance_sampling_mode) not in CORRECTIONS:
        yield f"TokenPOConfig.vllm_importance_sampling_mode = {mode!r} must be one of {', '.join(CORRECTIONS)}"
    if args.ratio_tolerance is not None and not args.ratio_tolerance > 0:
        yield f"TokenPOConfig.ratio_tolerance = {args.ratio_tolerance} must be above 0"
    for name in ("max_extra_batches", "trace_every", "trace_rollouts", "rollouts_every"):
        if getattr(args, name) < 0:
            yield f"TokenPOConfig.{name} = {getattr(args, name)} must not be negative"
    if args.dynamic_sampling and args.log_completions:
        yield (
            "TRL's log_completions would show the last draw of dynamic_sampling, which is not what is trained on: "
            "leave one of them False; traces of what is trained on are in OUTPUT_DIR/tokenpo"
        )


# (settings, defaults of TRL's fields) -> faults.
CHECKS: tuple[Callable[[Any, Mapping[str, Any]], Iterator[str]], ...] = (
    lambda args, defaults: touched(args, defaults, named(args)[2]),
    _keywords,
    _ranges,
)
