"""Builds a trainer's objective from the method and TRL's settings; rejects what TRL cannot do. Imports no TRL."""

import copy
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sized
from typing import Any

from ...base.errors import TokenPOError, refuse
from ...core.negotiation import missing
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
from ...methods.extensions import Preset
from ...methods.responses import SoftWeight
from .settings import CORRECTIONS, contradicted, cut_of, named
from .updates import Cycle

ENGINE = "TRL"
# The inputs that `rollout_batch` and `forward` compute from TRL's output; kept in step with them by hand.
ALWAYS = frozenset(
    {"old_entropy", "ref_logprob", "temperature", "token_ids", "entropy", "entropy_drift", "rewards", "turn"}
)
# With vLLM, or a rollout_func that returns logprobs.
SAMPLED = frozenset({"rollout_logprob"})
# Arguments of TRL's trainer by which it does not sample by itself.
OWN = ("rollout_func", "tools", "environment_factory")
_COMPUTED = "train with the embedded engine (tokenpo train), which computes it"
_TOLD = "train with the embedded engine (tokenpo train) on a task that reports turns and their states"
REMEDIES = {
    **dict.fromkeys(OPTIONAL - ALWAYS, _COMPUTED),
    "rollout_logprob": "set use_vllm=True, or give a rollout_func that returns logprobs",
    **dict.fromkeys(("token_reward", "anchor"), _TOLD),
    "value": "GRPOTrainer has no value model: train with the embedded engine (tokenpo train), which has a value head",
    **dict.fromkeys(TAUGHT, "give TokenPOTrainer the teacher as teacher_model"),
}


def chosen(args: Any, requested: str | Objective | None = None, bound: Mapping[str, Any] = {}) -> Objective:
    """The method with TRL's penalty, mask and correction, for a trainer's `method=` and its other arguments `bound`.

    Raises:
        TokenPOError: two methods, an option of the wrong kind, or two penalties on leaving the reference.
        Unsupported: with all that `CHECKS` find.
    """
    objective, reported = _resolved(args, requested), args.use_vllm or bool(bound.get("rollout_func"))
    objective = extended(
        _weighed_inside(args, objective),
        reference=_penalty(args, objective),
        correction=Preset(_weights(args, objective, reported=reported)),
        labels={"reference": f"TokenPOConfig.beta = {args.beta}"},
    )
    refuse(fault for check in CHECKS for fault in check(args, objective, bound))
    return objective


def lacking(objective: Objective, *, reported: bool, taught: bool = False) -> Iterator[str]:
    """Yields a sentence for each input that TRL lacks; `reported`: the sampler reports log-probabilities."""
    provides = ALWAYS | (SAMPLED if reported else frozenset()) | (TAUGHT if taught else frozenset())
    return missing(objective, provides, ENGINE, REMEDIES)


def with_reference(args: Any, objective: Objective) -> Any:
    """The settings with `beta` nonzero exactly if the objective reads a reference, which TRL then loads."""
    if ("ref_logprob" in objective.needs) == (args.beta != 0.0):
        return args
    changed = copy.copy(args)
    betas = [part.beta for part in walk(objective) if isinstance(part, ReferenceKl)]
    changed.beta = betas[0] if betas else 1.0
    return changed


def _resolved(args: Any, requested: str | Objective | None) -> Objective:
    if requested is None:
        name, options, _ = named(args)
        return build_method(name, options)
    name = requested.name if isinstance(requested, Objective) else requested
    other = args.method not in (None, name)
    if isinstance(requested, Objective):
        if other or args.method_options:
            raise TokenPOError(
                f"method= is the objective {name}, so TokenPOConfig.method and method_options say nothing: "
                "leave them out"
            )
        return requested
    if other:
        raise TokenPOError(f"method={name!r} and TokenPOConfig.method={args.method!r} name two methods: give one")
    return build_method(name, args.method_options or {})


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


def _inputs(args: Any, objective: Objective, bound: Mapping[str, Any]) -> Iterator[str]:
    reported, teacher = args.use_vllm or bool(bound.get("rollout_func")), bound.get("teacher_model")
    yield from lacking(objective, reported=reported, taught=teacher is not None)
    if teacher is not None and not objective.needs & TAUGHT:
        yield (
            f"teacher_model: {objective.name} reads no teacher: leave it out, or give method="
            f"tokenpo.with_teacher(tokenpo.method({objective.name!r}), 0.1)"
        )
    model = bound.get("model")
    # Under LoRA the reference is the model without its adapter.
    lora = bound.get("peft_config") is not None or hasattr(model, "peft_config")
    config = getattr(model, "config", None)
    if "ref_logprob" in objective.needs and config is not None and not lora and not config._name_or_path:
        yield (
            f"{objective.name} needs ref_logprob, and TRL loads the reference from the directory of the model, which "
            "this one, made in memory, does not have: save it with save_pretrained and give the path"
        )


def _idle(args: Any, objective: Objective, bound: Mapping[str, Any]) -> Iterator[str]:
    """Settings that would change nothing, or not as set."""
    mode, inside = args.vllm_importance_sampling_mode, getattr(objective.surrogate, "inside", None)
    corrected = args.use_vllm and args.vllm_importance_sampling_correction
    if corrected and inside is not None and CORRECTIONS[mode][0]:
        yield (
            f"TokenPOConfig.vllm_importance_sampling_mode = {mode!r}: {objective.name} weighs tokens inside its own "
            "weight, as in TRL: set it to 'token_truncate' or 'token_mask'"
        )
    weights, theirs = getattr(objective.credit, "weights", ()), tuple(args.reward_weights or ())
    if "rewards" in objective.needs and theirs and theirs != (tuple(weights) or (1.0,) * len(theirs)):
        yield (
            f"TokenPOConfig.reward_weights = {list(theirs)} would not reach {objective.name}, which reads every reward "
            "by itself: leave it out, or give method_options={'weights': [...]}"
        )
    if args.max_completion_length is None and any(part == ConstantLength() for part in walk(objective)):
        yield (
            f"{objective.name} divides by the longest response allowed, and TokenPOConfig.max_completion_length is None"
            ": set it, or give method_options={'length': ...}"
        )


def _sampled(args: Any, objective: Objective, bound: Mapping[str, Any]) -> Iterator[str]:
    """Settings of the sampler under which it does not sample what the objective assumes."""
    own = any(bound.get(name) for name in OWN)
    heat, changed = objective.temperature is not None, [*contradicted(args)]
    # vLLM reports log-probabilities of what it samples from, so every ratio to them would be another one.
    if args.use_vllm and not heat and "rollout_logprob" in objective.needs:
        for setting, remedy in changed:
            yield (
                f"TokenPOConfig.{setting} changes the rollout_logprob that vLLM reports and {objective.name} reads: "
                f"{remedy}, or set vllm_importance_sampling_correction=False with a method that corrects nothing itself"
            )
    for applies, action, remedy in (
        (own, "ask of a rollout_func, environment or tool", "leave it out"),
        (
            args.use_transformers_continuous_batching,
            "ask of continuous batching",
            "set use_transformers_continuous_batching=False",
        ),
        *((True, f"combine with {setting}", remedy)
          for setting, remedy in (changed if args.use_vllm else contradicted(args, cuts=False))),
    ):  # fmt: skip
        if heat and applies:
            yield (
                f"{objective.name} adapts the temperature from token to token, which {ENGINE} cannot {action}: {remedy}"
                ", or switch the method's adaptive temperature off (for hapo: method_options={'tau': 0})"
            )
    rows = bound.get("train_dataset", ())
    if args.dynamic_sampling and (own or not isinstance(rows, Sized) or isinstance(rows, Mapping)):
        yield (
            "dynamic_sampling draws further prompts from the train_dataset of TRL's trainer: give a datasets.Dataset, "
            "and no rollout_func, tools or environment_factory, or leave it False"
        )


def _kept(args: Any, objective: Objective, bound: Mapping[str, Any]) -> Iterator[str]:
    """Settings under which the kept tokens are not known, or a number that is read is not over them."""
    if not args.kept_tokens:
        return
    whole = sorted(objective.needs & {"ref_logprob", *TAUGHT})
    cuts = [setting for setting, _ in contradicted(args) if setting.split(" ")[0] not in ("top_p", "top_k", "min_p")]
    for why, applies in {
        "vLLM 0.31 does not return them: set use_vllm=False": args.use_vllm,
        "a rollout_func, tool or environment samples out of sight: leave it out": any(map(bound.get, OWN)),
        "continuous batching samples out of sight: leave it out": args.use_transformers_continuous_batching,
        "dynamic_sampling joins draws that kept other numbers of them: leave it False": args.dynamic_sampling,
        f"{''.join(cuts[:1])} changes what is sampled, too: leave it out": cuts,
        f"{objective.name} reads {''.join(whole[:1])}, which TRL takes over the whole vocabulary: leave it out": whole,
        f"{objective.name} adapts the temperature: take another method": objective.temperature is not None,
        cut_of(args).fault: cut_of(args).fault,
    }.items():
        if applies:
            yield f"TokenPOConfig.kept_tokens needs the tokens that top_p, top_k and min_p keep, and {why}"


def _scheduled(args: Any, objective: Objective, bound: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{objective.name}: {fault}" for fault in Cycle.of(args, objective).faults())


# (settings, objective, arguments of TRL's trainer) -> faults.
CHECKS: tuple[Callable[[Any, Objective, Mapping[str, Any]], Iterator[str]], ...] = (
    _inputs,
    _idle,
    _sampled,
    _kept,
    _scheduled,
)
