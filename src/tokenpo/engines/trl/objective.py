"""The objective that a trainer is asked for, and what TRL can honour of it. Imports neither TRL nor its settings."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from ...base.errors import TokenPOError, Unsupported
from ...core.negotiation import negotiate
from ...core.objective import Objective
from ...core.parts import (
    ConstantLength,
    Drop,
    GeometricSequence,
    GeometricToken,
    Penalty,
    Ratio,
    ReferenceKl,
    Reweighted,
    RolloutCorrection,
    Strayed,
    TokenRatio,
    Weight,
)
from ...core.parts.part import Part, walk
from ...methods import method
from ...methods.vespo import SoftWeight

ENGINE = "the TRL engine"
ALWAYS = frozenset(
    {"old_entropy", "ref_logprob", "temperature", "token_ids", "entropy", "entropy_drift", "rewards", "turn"}
)
# With vLLM, or a rollout_func that returns logprobs.
SAMPLED = frozenset({"rollout_logprob"})
_COMPUTED = "train with the embedded engine (tokenpo train), which computes it"
_TOLD = "train with the embedded engine (tokenpo train) on a task that tells of its turns"
REMEDIES = {
    "rollout_logprob": "set use_vllm=True, or give a rollout_func that returns logprobs",
    **dict.fromkeys(("prompt_logprob", "influence", "divergence", "old_collision"), _COMPUTED),
    **dict.fromkeys(("token_reward", "anchor"), _TOLD),
    "gain": "train with the embedded engine (tokenpo train), which draws the continuations",
}
# How TRL corrects for vLLM's log-probabilities: whether by response, and whether weights out of bounds become 0.
CORRECTIONS = {
    "token_truncate": (False, False),
    "token_mask": (False, True),
    "sequence_truncate": (True, False),
    "sequence_mask": (True, True),
}
# What may stand in generation_kwargs of vLLM: it changes no probability.
_HARMLESS = ("seed", "stop", "stop_token_ids", "include_stop_str_in_output", "extra_args", "vllm_xargs")


def chosen(args: Any, requested: str | Objective | None, *, own_rollouts: bool, reported: bool = False) -> Objective:
    """The objective, with what settings of TRL add to every method, where TRL has what it reads.

    Args:
        requested: the trainer's `method=`.
        own_rollouts: a rollout_func, or a conversation with tools or an environment, samples.
        reported: a rollout_func samples, which has to return log-probabilities.

    Raises:
        TokenPOError: two methods, an option of the wrong kind, or two penalties on leaving the reference.
        Unsupported: the method reads what TRL does not have, divides by a length that is not set, or adapts the
            temperature where nothing can apply it.
    """
    objective = _resolved(args, requested)
    reported = args.use_vllm or reported
    objective = dataclasses.replace(
        objective,
        penalties=objective.penalties + _penalty(args, objective),
        weights=objective.weights + _mask(args, reported=reported),
    )
    objective = _corrected(args, objective)
    require_inputs(objective, reported=reported)
    if "rewards" in objective.needs:
        _require_weights(args, objective)
    if args.max_completion_length is None and any(part == ConstantLength() for part in walk(objective)):
        raise Unsupported(
            f"{objective.name} divides by the longest response allowed, and TokenPOConfig.max_completion_length is None"
            ": set it, or give method_options={'length': ...}"
        )
    if objective.temperature is not None:
        _require_temperature(objective, args, own_rollouts=own_rollouts)
    _require_whole_distribution(objective, args)
    return objective


def require_inputs(
    objective: Objective,
    *,
    reported: bool,
    remedies: Mapping[str, str] = REMEDIES,
    provides: frozenset[str] = ALWAYS,
) -> None:
    """Raises Unsupported where the objective reads what TRL does not have.

    Args:
        reported: whoever samples reports log-probabilities.
        remedies: input -> what the user can do about it.
        provides: what TRL has whoever samples.
    """
    negotiate(objective, provides | SAMPLED if reported else provides, ENGINE, remedies)


def _require_weights(args: Any, objective: Objective) -> None:
    """Raises Unsupported where TRL weighs rewards otherwise than an objective that takes them one by one."""
    own = getattr(objective.credit, "weights", ())
    theirs = tuple(args.reward_weights or ())
    if theirs and theirs != (tuple(own) or (1.0,) * len(theirs)):
        raise Unsupported(
            f"TokenPOConfig.reward_weights = {list(theirs)} would not reach {objective.name}, which reads every reward "
            "by itself: leave it out, and give method_options={'weights': [...]} where the method has them"
        )


def require_reference(objective: Objective, model: Any, peft_config: Any) -> None:
    """TRL loads the reference from where the model came from; under LoRA it is the model without its adapter.

    Raises:
        Unsupported: the objective reads a reference, and the model came from nowhere.
    """
    if "ref_logprob" not in objective.needs or isinstance(model, str) or peft_config is not None:
        return
    if hasattr(model, "peft_config") or model.config._name_or_path:
        return
    raise Unsupported(
        f"{objective.name} needs ref_logprob, and TRL loads the reference from the directory of the model, which this "
        "one, made in memory, does not have: save it with save_pretrained and give the path"
    )


def with_reference(args: Any, objective: Objective) -> Any:
    """The settings with which TRL loads a reference model exactly where the objective reads one.

    TRL's switch for it is `beta`; its own loss, the only other reader of that number, is never called.
    """
    if ("ref_logprob" in objective.needs) == (args.beta != 0.0):
        return args
    changed = copy.copy(args)
    betas = [part.beta for part in walk(objective) if isinstance(part, ReferenceKl)]
    changed.beta = betas[0] if betas else 1.0
    return changed


def _resolved(args: Any, requested: str | Objective | None) -> Objective:
    given_options = args.method_options or {}
    assert isinstance(given_options, dict)  # the settings refuse any other text
    options = {key: _tuples(value) for key, value in given_options.items()}
    if requested is None or isinstance(requested, str):
        if requested is not None and args.method not in (requested, "grpo"):
            raise TokenPOError(
                f"method={requested!r} and TokenPOConfig.method={args.method!r} name two methods: give one"
            )
        try:
            return method(requested or args.method, **options)
        except TypeError as error:
            if isinstance(error, TokenPOError):
                raise
            raise TokenPOError(
                f"method {requested or args.method}: an option has a value of the wrong kind: {error}"
            ) from error
    if not isinstance(requested, Objective):
        raise TokenPOError(f"method= is a {type(requested).__name__}, expected the name of a method or an Objective")
    if options or args.method not in ("grpo", requested.name):
        raise TokenPOError(
            f"method= is the objective {requested.name}, so TokenPOConfig.method and method_options say nothing: "
            "leave them out"
        )
    return requested


def _penalty(args: Any, objective: Objective) -> tuple[Penalty, ...]:
    """TRL's penalty on leaving the reference, which it multiplies by the ratio of its loss unless told not to."""
    if args.beta == 0.0:
        return ()
    own = [part for part in walk(objective.penalties) if isinstance(part, ReferenceKl)]
    if own:
        raise TokenPOError(
            f"TokenPOConfig.beta = {args.beta} comes on top of {own[0]}, which {objective.name} has already: leave "
            "beta at 0, or switch the method's own off with its option for the coefficient"
        )
    divergence = ReferenceKl(args.beta)
    return (Reweighted(divergence, _ratio(objective)) if args.use_bias_correction_kl else divergence,)


def _ratio(objective: Objective) -> Ratio:
    """What TRL calls the level of importance sampling: the response's for a method that has it, else the token's."""
    own = getattr(objective.surrogate, "ratio", None)
    return GeometricSequence() if isinstance(own, GeometricSequence | GeometricToken) else TokenRatio()


def _mask(args: Any, *, reported: bool) -> tuple[Weight, ...]:
    """TRL's off-policy sequence mask, by the log-probabilities of whoever sampled where they are reported."""
    delta = args.off_policy_mask_threshold
    return () if delta is None else (Drop(Strayed(delta, sampler=reported)),)


def _corrected(args: Any, objective: Objective) -> Objective:
    """With TRL's correction for vLLM's log-probabilities, which it switches on by default, as a weight of ours.

    None where the objective corrects for the policy that sampled itself: twice would be once too often.
    """
    if not (args.use_vllm and args.vllm_importance_sampling_correction):
        return objective
    if own := objective.corrects_rollout:
        _require_defaults(args, objective.name, own[0])
        return objective
    mode = args.vllm_importance_sampling_mode
    sequence, mask = CORRECTIONS[mode]
    cap, floor = args.vllm_importance_sampling_clip_max, args.vllm_importance_sampling_clip_min
    correction = RolloutCorrection(sequence, mask, math.inf if cap is None else cap, floor or 0.0)
    if not isinstance(objective.surrogate, SoftWeight):
        return dataclasses.replace(objective, weights=(*objective.weights, correction))
    if sequence:
        raise Unsupported(
            f"TokenPOConfig.vllm_importance_sampling_mode = {mode!r}: {objective.name} weighs tokens inside its own "
            "weight, as in TRL: set it to 'token_truncate' or 'token_mask'"
        )
    return dataclasses.replace(objective, surrogate=dataclasses.replace(objective.surrogate, inside=correction))


def _require_defaults(args: Any, name: str, own: Part) -> None:
    """Raises Unsupported where settings of TRL's correction were changed, in whose place the objective has its own."""
    for end in ("mode", "clip_max", "clip_min"):
        setting = f"vllm_importance_sampling_{end}"
        value, usual = getattr(args, setting), type(args).__dataclass_fields__[setting].default
        if value != usual:
            raise Unsupported(
                f"TokenPOConfig.{setting} = {value!r} would change nothing, as {own} of {name} weighs against the "
                f"policy that sampled: leave it at {usual!r}"
            )


def _require_whole_distribution(objective: Objective, args: Any) -> None:
    """Raises Unsupported where vLLM reports log-probabilities of what it cut the distribution down to, and the
    objective compares them with those of the whole: every ratio would be too small."""
    if args.use_vllm and "rollout_logprob" in objective.needs and (setting := _cut(args)):
        raise Unsupported(
            f"TokenPOConfig.{setting.split(':')[0]}: {objective.name} reads rollout_logprob, which vLLM reports of the "
            f"tokens that this keeps, and TRL's trainer of the whole vocabulary: {setting.split(': ')[1]}, or set "
            "vllm_importance_sampling_correction=False with a method that corrects nothing itself"
        )


def _require_temperature(objective: Objective, args: Any, *, own_rollouts: bool) -> None:
    """Raises Unsupported where the engine that samples cannot adapt the temperature from token to token."""
    off = "switch the method's adaptive temperature off (for hapo: method_options={'tau': 0})"
    what = f"{objective.name} adapts the temperature from token to token, which {ENGINE}"
    if own_rollouts:
        raise Unsupported(f"{what} cannot ask of a rollout_func, environment or tool: leave it out, or {off}")
    if args.use_transformers_continuous_batching:
        raise Unsupported(
            f"{what} cannot ask of continuous batching: set use_transformers_continuous_batching=False, or {off}"
        )
    if args.use_vllm and (setting := contradicted(args)):
        raise Unsupported(f"{what} cannot combine, in vLLM, with {setting}, or {off}")
    if args.repetition_penalty != 1.0:
        raise Unsupported(f"{what} cannot combine with repetition_penalty: leave it at 1.0, or {off}")


def contradicted(args: Any) -> str | None:
    """The setting under which vLLM would sample from other logits than the trainer sees, with what to do about it.

    The temperature of a token would then be another than the one that the trainer works out.
    """
    if cut := _cut(args):
        return cut
    if args.vllm_structured_outputs_regex is not None:
        return "vllm_structured_outputs_regex: leave it out"
    for name in args.generation_kwargs or {}:
        if name not in _HARMLESS:
            return f"generation_kwargs[{name!r}]: leave it out"
    return None


def _cut(args: Any) -> str | None:
    """The setting that keeps some tokens of the vocabulary only, with what to do about it."""
    for name, usual in (("top_p", (1.0,)), ("top_k", (0, -1, None)), ("min_p", (0.0, None))):
        if getattr(args, name) not in usual:
            return f"{name} = {getattr(args, name)}: leave it at {usual[0]}"
    return None


def _tuples(value: Any) -> Any:
    """Lists become tuples, so that the objective stays hashable."""
    if isinstance(value, Mapping):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
