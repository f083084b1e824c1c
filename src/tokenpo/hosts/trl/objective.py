"""Builds a trainer's objective from the method and TRL's settings; refuses what TRL cannot honour. Imports no TRL."""

import copy
import dataclasses
import math
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
    ReferenceKl,
    Reweighted,
    RolloutCorrection,
    Strayed,
    TokenRatio,
    Weight,
    walk,
)
from ...core.types import OPTIONAL, TAUGHT
from ...methods import build_method, extended
from ...methods.corrections import Preset
from ...methods.vespo import SoftWeight
from .settings import CORRECTIONS, contradicted, cut, named

ENGINE = "the TRL engine"
# The inputs that `rollout_batch` and `forward` compute from TRL's output; kept in step with them by hand.
ALWAYS = frozenset(
    {"old_entropy", "ref_logprob", "temperature", "token_ids", "entropy", "entropy_drift", "rewards", "turn"}
)
# With vLLM, or a rollout_func that returns logprobs.
SAMPLED = frozenset({"rollout_logprob"})
_COMPUTED = "train with the embedded engine (tokenpo train), which computes it"
_TOLD = "train with the embedded engine (tokenpo train) on a task that reports turns and their states"
REMEDIES = {
    **dict.fromkeys(OPTIONAL - ALWAYS, _COMPUTED),
    "rollout_logprob": "set use_vllm=True, or give a rollout_func that returns logprobs",
    **dict.fromkeys(("token_reward", "anchor"), _TOLD),
    "value": "GRPOTrainer has no value model: train with the embedded engine (tokenpo train), which has a value head",
    **dict.fromkeys(TAUGHT, "give TokenPOTrainer the teacher as teacher_model"),
}


def chosen(
    args: Any, requested: str | Objective | None, *, own_rollouts: bool, reported: bool = False, taught: bool = False
) -> Objective:
    """The method with TRL's penalty, mask and correction.

    Args:
        requested: the trainer's `method=`.
        own_rollouts: responses come from a rollout_func, or from a conversation with tools or an environment.
        reported: responses come from a rollout_func, which has to return log-probabilities.
        taught: the trainer has a teacher.

    Raises:
        TokenPOError: two methods, an option of the wrong kind, or two penalties on leaving the reference.
        Unsupported: TRL lacks an input of the method, or its settings contradict the method.
    """
    objective, reported = _resolved(args, requested), args.use_vllm or reported
    if args.use_vllm and args.vllm_importance_sampling_correction:
        _require_correction(args, objective)
    objective = extended(
        _weighed_inside(args, objective),
        reference=_penalty(args, objective),
        correction=Preset(_weights(args, objective, reported=reported)),
        labels={"reference": f"TokenPOConfig.beta = {args.beta}"},
    )
    require_inputs(objective, reported=reported, taught=taught)
    _require_weights(args, objective)
    if args.max_completion_length is None and any(part == ConstantLength() for part in walk(objective)):
        raise Unsupported(
            f"{objective.name} divides by the longest response allowed, and TokenPOConfig.max_completion_length is None"
            ": set it, or give method_options={'length': ...}"
        )
    if objective.temperature is not None:
        _require_temperature(args, objective, own_rollouts=own_rollouts)
    # vLLM normalises its log-probabilities over the kept tokens only, so every ratio to them would be too small.
    if args.use_vllm and "rollout_logprob" in objective.needs and (excludes := cut(args)):
        raise Unsupported(
            f"TokenPOConfig.{excludes[0]}: {objective.name} reads rollout_logprob, which vLLM reports of the tokens "
            f"that this keeps, and TRL's trainer of the whole vocabulary: {excludes[1]}, or set "
            "vllm_importance_sampling_correction=False with a method that corrects nothing itself"
        )
    return objective


def require_inputs(objective: Objective, *, reported: bool, taught: bool = False) -> None:
    """Raises Unsupported if TRL lacks an input of the objective.

    Args:
        reported: the sampler reports log-probabilities.
        taught: there is a teacher.
    """
    provides = ALWAYS | (SAMPLED if reported else frozenset()) | (TAUGHT if taught else frozenset())
    negotiate(objective, provides, ENGINE, REMEDIES)


def require_reference(objective: Objective, model: Any, peft_config: Any) -> None:
    """Raises Unsupported if the objective reads a reference and the model has no path to load one from.

    Under LoRA the reference is the model without its adapter.
    """
    lora = peft_config is not None or hasattr(model, "peft_config")
    if "ref_logprob" not in objective.needs or isinstance(model, str) or lora or model.config._name_or_path:
        return
    raise Unsupported(
        f"{objective.name} needs ref_logprob, and TRL loads the reference from the directory of the model, which this "
        "one, made in memory, does not have: save it with save_pretrained and give the path"
    )


def with_reference(args: Any, objective: Objective) -> Any:
    """The settings with `beta` nonzero exactly if the objective reads a reference, since TRL then loads one.

    Only TRL's own loss also reads `beta`, and it is never called.
    """
    if ("ref_logprob" in objective.needs) == (args.beta != 0.0):
        return args
    changed = copy.copy(args)
    betas = [part.beta for part in walk(objective) if isinstance(part, ReferenceKl)]
    changed.beta = betas[0] if betas else 1.0
    return changed


def _resolved(args: Any, requested: str | Objective | None) -> Objective:
    name, options, _ = named(args)
    if requested is None or isinstance(requested, str):
        if requested is not None and name not in (requested, "grpo"):
            raise TokenPOError(f"method={requested!r} and TokenPOConfig.method={name!r} name two methods: give one")
        return build_method(requested or name, options)
    if not isinstance(requested, Objective):
        raise TokenPOError(f"method= is a {type(requested).__name__}, expected the name of a method or an Objective")
    if options or name not in ("grpo", requested.name):
        raise TokenPOError(
            f"method= is the objective {requested.name}, so TokenPOConfig.method and method_options say nothing: "
            "leave them out"
        )
    return requested


def _penalty(args: Any, objective: Objective) -> Penalty | None:
    """TRL's KL penalty to the reference, by default times the importance ratio of TRL's loss."""
    if args.beta == 0.0:
        return None
    penalty: Penalty = ReferenceKl(args.beta)
    if not args.use_bias_correction_kl:
        return penalty
    # As TRL's importance_sampling_level: the response's ratio for a method that has one, else the token's.
    ratio = getattr(objective.surrogate, "ratio", None)
    of_response = isinstance(ratio, GeometricSequence | GeometricToken)
    return Reweighted(penalty, GeometricSequence() if of_response else TokenRatio())


def _weights(args: Any, objective: Objective, *, reported: bool) -> tuple[Weight, ...]:
    """TRL's mask of responses that have moved away, and its correction for vLLM."""
    weights: tuple[Weight, ...] = ()
    if args.off_policy_mask_threshold is not None:
        weights += (Drop(Strayed(args.off_policy_mask_threshold, sampler=reported)),)
    if corrects(args, objective) and not isinstance(objective.surrogate, SoftWeight):
        weights += (_correction(args),)
    return weights


def _weighed_inside(args: Any, objective: Objective) -> Objective:
    """The objective with TRL's correction for vLLM inside its weight, where TRL has it for this loss."""
    if not corrects(args, objective) or not isinstance(objective.surrogate, SoftWeight):
        return objective
    return dataclasses.replace(objective, surrogate=dataclasses.replace(objective.surrogate, inside=_correction(args)))


def corrects(args: Any, objective: Objective) -> bool:
    """Whether TRL's correction for vLLM is on and the method has none of its own."""
    return args.use_vllm and args.vllm_importance_sampling_correction and not objective.corrects_rollout


def _correction(args: Any) -> RolloutCorrection:
    sequence, mask = CORRECTIONS[args.vllm_importance_sampling_mode]
    cap, floor = args.vllm_importance_sampling_clip_max, args.vllm_importance_sampling_clip_min
    return RolloutCorrection(sequence, mask, math.inf if cap is None else cap, floor or 0.0)


def _require_correction(args: Any, objective: Objective) -> None:
    """Raises Unsupported if TRL's correction for vLLM is set and cannot act, or not as set."""
    if own := objective.corrects_rollout:
        for name in (f"vllm_importance_sampling_{end}" for end in ("mode", "clip_max", "clip_min")):
            value, default = getattr(args, name), type(args).__dataclass_fields__[name].default
            if value != default:
                raise Unsupported(
                    f"TokenPOConfig.{name} = {value!r} would change nothing, as {own[0]} of {objective.name} weighs "
                    f"against the policy that sampled: leave it at {default!r}"
                )
    mode = args.vllm_importance_sampling_mode
    if not own and isinstance(objective.surrogate, SoftWeight) and CORRECTIONS[mode][0]:
        raise Unsupported(
            f"TokenPOConfig.vllm_importance_sampling_mode = {mode!r}: {objective.name} weighs tokens inside its own "
            "weight, as in TRL: set it to 'token_truncate' or 'token_mask'"
        )


def _require_weights(args: Any, objective: Objective) -> None:
    """Raises Unsupported if reward_weights are not the weights of an objective that reads every reward by itself."""
    own, theirs = getattr(objective.credit, "weights", ()), tuple(args.reward_weights or ())
    if "rewards" in objective.needs and theirs and theirs != (tuple(own) or (1.0,) * len(theirs)):
        raise Unsupported(
            f"TokenPOConfig.reward_weights = {list(theirs)} would not reach {objective.name}, which reads every reward "
            "by itself: leave it out, and give method_options={'weights': [...]} where the method has them"
        )


def _require_temperature(args: Any, objective: Objective, *, own_rollouts: bool) -> None:
    """Raises Unsupported if the sampler cannot adapt the temperature from token to token."""
    setting, without = contradicted(args) or ("", "")
    for refused, action, remedy in (
        (own_rollouts, "ask of a rollout_func, environment or tool", "leave it out"),
        (
            args.use_transformers_continuous_batching,
            "ask of continuous batching",
            "set use_transformers_continuous_batching=False",
        ),
        (args.use_vllm and setting, f"combine, in vLLM, with {setting}", without),
        (args.repetition_penalty != 1.0, "combine with repetition_penalty", "leave it at 1.0"),
    ):
        if refused:
            raise Unsupported(
                f"{objective.name} adapts the temperature from token to token, which {ENGINE} cannot {action}: {remedy}"
                ", or switch the method's adaptive temperature off (for hapo: method_options={'tau': 0})"
            )
