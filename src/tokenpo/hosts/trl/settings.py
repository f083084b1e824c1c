"""The fields of TRL's `GRPOConfig` that are rejected, and the method for each form of TRL's loss. Imports no TRL."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ...core.head.kept import Cut

# Fields of `GRPOConfig` that are settings of TRL's own loss -> what to set instead.
REFUSED = {
    "loss_type": "set method to the one that docs/trl.md lists for it",
    "epsilon": "give the method its own bounds, for example method_options={'low': 0.1}",
    "epsilon_high": "give the method its own bounds, for example method_options={'high': 0.28}",
    "delta": "give the method a dual clip above 1 + high, for example method_options={'dual': 10.0}",
    "importance_sampling_level": "choose the method 'gspo'",
    "scale_rewards": "choose a method that scales rewards so: 'dr_grpo' for 'none', 'lite_ppo' for 'batch'",
    "multi_objective_aggregation": "choose the method 'gdpo' for 'normalize_then_sum'",
    "top_entropy_quantile": "choose the method 'forking_tokens'",
    "entropy_coef": "add tokenpo.parts.EntropyBonus to a method's penalties and give the objective as method=",
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
# Settings that cut the distribution that is sampled from, or change its logits -> values at which they do not.
_USUAL: dict[str, tuple[Any, ...]] = {
    "top_p": (1.0,), "top_k": (0, -1), "min_p": (0.0, None), "repetition_penalty": (1.0,),
}  # fmt: skip
# Keywords of generation that change no probability in vLLM.
_HARMLESS = {"stop", "stop_token_ids", "include_stop_str_in_output", "extra_args", "vllm_xargs"}


def contradicted(args: Any, *, cuts: bool = True) -> Iterator[tuple[str, str]]:
    """Yields each setting under which other probabilities than the model's are sampled from, and its remedy."""
    for name, usual in _USUAL.items():
        value = getattr(args, name)
        if value not in usual and (cuts or name == "repetition_penalty"):
            yield f"{name} = {value!r}", f"leave it at {usual[0]}"
    for name, value in (args.generation_kwargs or {}).items():
        if value and name not in _HARMLESS | {*OVERRIDING}:
            yield f"generation_kwargs[{name!r}] = {value!r}", "leave it out"
    if args.vllm_structured_outputs_regex:
        yield f"vllm_structured_outputs_regex = {args.vllm_structured_outputs_regex!r}", "leave it out"


def cut_of(args: Any) -> Cut:
    """The tokens that TRL's settings let a sampler choose."""
    return Cut(args.top_p, max(args.top_k, 0), args.min_p or 0.0)


def touched(args: Any, defaults: Mapping[str, Any], taken: Collection[str] = ()) -> Iterator[str]:
    """Yields a sentence for each rejected field that is set, except those in `taken`, which became options."""
    for name, remedy in REFUSED.items():
        value, default = getattr(args, name), defaults[name]
        if value != default and name not in taken:
            yield (
                f"TokenPOConfig.{name} = {value!r} is a setting of TRL's own loss, which the method replaces: leave it "
                f"at {default!r} and {remedy}"
            )


def faults(args: Any, defaults: Mapping[str, Any]) -> Iterator[str]:
    """Yields a sentence for each setting that contradicts the method or another one; `defaults` are TRL's fields'."""
    yield from touched(args, defaults, named(args)[2])
    keywords: Any = args.generation_kwargs or {}
    for key, name in OVERRIDING.items():
        setting = getattr(args, name)
        if key in keywords and keywords[key] != setting:
            yield (
                f"TokenPOConfig.generation_kwargs[{key!r}] = {keywords[key]!r} is not the {name} = {setting!r} that "
                f"the trainer goes by: leave it out, and set TokenPOConfig.{name}"
            )
