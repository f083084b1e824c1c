"""The table of verl's settings that are rejected, set, or allowed for some objectives; does not import verl."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ...core.objective import Objective
from ...core.parts import AdaptiveTemperature

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
LOOP = "tokenpo_single_turn"  # our agent loop in verl's table
LOOPS = (LOOP, "single_turn_agent")  # ours replaces verl's own


@dataclass(frozen=True)
class Setting:
    """One key of verl's configuration; .* at its end means all keys below it."""

    key: str
    fate: Literal["refused", "used"]  # refused: all values but one; used: the adapter reads or sets it
    words: str  # how it is treated
    only: tuple[Any, ...] = ()  # allowed values, the remedy first; empty for any
    never: tuple[Any, ...] = ()
    applies: Callable[[Objective], bool] = lambda objective: True  # objectives for which `only` and `never` hold
    why: str = ""  # reason of a rejection; `words` if empty
    remedy: str = ""  # if empty: set the first value of `only`
    set_where: Callable[[Objective], bool] = lambda objective: False  # objectives for which it is set to `becomes`
    becomes: Any = True

    def allows(self, value: Any, objective: Objective) -> bool:
        allowed = (not self.only or value in self.only) and value not in self.never
        return allowed or not self.applies(objective)


def steps_alone(objective: Objective) -> bool:
    """Whether the driver calls the objective's optimiser steps one by one."""
    return objective.scope == "batch" or len(objective.split()) > 1


def _reads(name: str) -> Callable[[Objective], bool]:
    return lambda objective: name in objective.needs


def _counts_drawn(objective: Objective) -> bool:
    """Whether a memory needs every drawn rollout; HAPO's reads only those trained on, as in its authors' code."""
    return any(not isinstance(part, AdaptiveTemperature) for part in objective.memories)


def _refused(key: str, value: Any, words: str, **more: Any) -> Setting:
    return Setting(key, "refused", words, (value,), **more)


def _used(key: str, words: str, **more: Any) -> Setting:
    return Setting(key, "used", words, **more)


_LOSS, _KL = f"{ACTOR}.policy_loss", "+algorithm.tokenpo.reference_kl"
_BOUNDS, _METHOD = "bounds are options of the method", "+algorithm.tokenpo.method names the loss"
_AGGREGATE, _DISCOUNT = "the method says how losses are aggregated", "our methods don't discount"
_FILTER, _RATE = "algorithm.filter_groups", f"{ACTOR}.optim"
_ALONE = {
    "words": "constant, without warm-up, where an objective takes its optimiser steps one by one; else verl's own",
    "applies": steps_alone,
    "why": "it takes its optimiser steps one by one, and verl would advance the learning-rate schedule after each",
}
_KEPT = {
    "words": "whole where the objective reads the sampler's log-probabilities",
    "applies": _reads("rollout_logprob"),
    "why": "rollout_logprob is reported of the tokens that this keeps, and scored by verl over the whole vocabulary",
}
_COLD = ", or +algorithm.tokenpo.options.tau=0"
_HEAT: dict[str, Any] = {
    "applies": lambda objective: objective.temperature is not None,
    "why": "its temperature changes from token to token, which this cannot be told",
}

SETTINGS: tuple[Setting, ...] = (
    _refused("algorithm.adv_estimator", "grpo", "the objective computes the advantage"),
    _refused("algorithm.use_kl_in_reward", False, f"{_KL}.beta=0.001 puts the divergence in the loss"),
    _refused("algorithm.use_pf_ppo", False, "the objective sees every rollout"),
    _refused("algorithm.norm_adv_by_std_in_grpo", True, "choose a method without the deviation, such as dr_grpo"),
    _refused("algorithm.gamma", 1.0, _DISCOUNT),
    _refused("algorithm.lam", 1.0, _DISCOUNT),
    # Where it is not set, verl follows adv_estimator.
    _used("critic.enable", "switched on where the objective reads a value, rejected elsewhere", only=(False, None),
              applies=lambda o: o.critic is None, why="it reads no value", set_where=_reads("value")),
    _refused("critic.loss_agg_mode", "token-mean", "its loss is a mean over tokens", applies=_reads("value")),
    _used("trainer.critic_warmup", "steps that train the critic alone; rejected where the objective reads no value",
              only=(0,), applies=lambda o: o.critic is None, why="it has no critic, and the policy would wait"),
    _refused(f"{_LOSS}.loss_mode", "vanilla", _METHOD),
    _refused(f"{_LOSS}.clip_cov_ratio", 0.0002, "it is options.fraction of clip_cov"),
    _refused(f"{_LOSS}.clip_cov_lb", 1.0, "it is options.cov_low of clip_cov"),
    _refused(f"{_LOSS}.clip_cov_ub", 5.0, "it is options.cov_high of clip_cov"),
    _refused(f"{_LOSS}.kl_cov_ratio", 0.0002, "it is options.fraction of kl_cov"),
    _refused(f"{_LOSS}.ppo_kl_coef", 0.1, "it is options.coef of kl_cov"),
    _refused(f"{_LOSS}.dro_beta", None, _METHOD),
    _refused(f"{_LOSS}.rollout_correction", None, "+algorithm.tokenpo.correction.level=token weighs"),
    _refused(f"{ACTOR}.tau_pos", 1.0, "it is options.tau_pos of sapo"),
    _refused(f"{ACTOR}.tau_neg", 1.05, "it is options.tau_neg of sapo"),
    _refused(f"{ACTOR}.loss_agg_mode", "token-mean", _AGGREGATE),
    _refused(f"{ACTOR}.loss_scale_factor", None, _AGGREGATE),
    _refused(f"{ACTOR}.clip_ratio", 0.2, f"{_BOUNDS}, +algorithm.tokenpo.options.low=..."),
    _refused(f"{ACTOR}.clip_ratio_low", 0.2, _BOUNDS),
    _refused(f"{ACTOR}.clip_ratio_high", 0.2, _BOUNDS),
    _refused(f"{ACTOR}.clip_ratio_c", 3.0, "the dual clip is an option of the method"),
    _refused(f"{ACTOR}.entropy_coeff", 0, "choose a method with an entropy bonus, such as aer"),
    # Still switched on for an objective that reads the reference: it makes verl start its reference model.
    _refused(f"{ACTOR}.use_kl_loss", False, f"{_KL}.beta=0.001 turns the reference on",
             set_where=_reads("ref_logprob")),
    _refused(f"{ACTOR}.kl_loss_coef", 0.001, f"{_KL}.beta is the coefficient"),
    _refused(f"{ACTOR}.kl_loss_type", "low_var_kl", f"{_KL}.estimator names it"),
    _refused(f"{ACTOR}.shuffle", False, "the responses of an optimiser step must be countable in the driver"),
    # verl's distillation starts its teachers, and its loss is replaced by ours.
    _used("distillation.enabled", "switched on where the objective reads a teacher, rejected elsewhere",
              only=(False,), applies=lambda o: "teacher_logprob" not in o.needs, why="it reads no teacher",
              set_where=_reads("teacher_logprob")),
    _used(f"{ROLLOUT}.temperature", "also of log-probabilities and entropies; 1 where the objective reads a "
              "teacher", only=(1,), applies=_reads("teacher_logprob"), why="verl's teachers score at temperature 1"),
    _used(f"{_FILTER}.enable", "groups whose rewards are all equal are dropped; rejected for methods whose memory "
              "sees all that was drawn", only=(False,), applies=_counts_drawn, why="its memory must see every rollout "
              "that is drawn, and verl drops groups before their entropies are known"),
    _used(f"{ACTOR}.strategy", "`fsdp` or `fsdp2`, others are rejected", only=("fsdp2", "fsdp"),
              why="tokenpo's loss ran in verl's FSDP engines only"),
    _used(f"{ACTOR}.calculate_entropy", "switched on where the objective reads the current entropy",
              set_where=_reads("entropy")),
    _used(f"{_RATE}.lr_scheduler_type", only=("constant",), **_ALONE),
    _used(f"{_RATE}.warmup_style", only=(None, "constant"), **(_ALONE | {"words": "verl's old name of it"})),
    _used(f"{_RATE}.lr_warmup_steps", only=(0, -1, None), **_ALONE),
    _used(f"{_RATE}.lr_warmup_steps_ratio", only=(0, None), **_ALONE),
    _used(f"{ROLLOUT}.calculate_log_probs", "switched on where the objective reads the sampler's "
              "log-probabilities", set_where=_reads("rollout_logprob")),
    _used(f"{ROLLOUT}.top_p", only=(1,), **_KEPT),
    _used(f"{ROLLOUT}.top_k", only=(-1, 0), **_KEPT),
    _refused(f"{ROLLOUT}.repetition_penalty", 1.0, "verl's agent loops ask for 1.0, whatever it is"),
    _refused(f"{ROLLOUT}.full_determinism", False, "it gives every request of a replica one seed, so that the "
             "responses to a prompt are copies of one another"),
    _used(f"{ROLLOUT}.name", "`sglang` and `trtllm` are rejected where the temperature adapts",
              never=("sglang", "trtllm"), remedy=f"set {ROLLOUT}.name=vllm{_COLD}", **_HEAT),
    _used(f"{ROLLOUT}.agent.default_agent_loop", f"`{LOOP}` in the place of verl's single-turn loop where the "
              "temperature adapts; others are rejected there", only=LOOPS, set_where=_HEAT["applies"], becomes=LOOP,
              remedy=f"set {ROLLOUT}.agent.default_agent_loop={LOOP}{_COLD}", **_HEAT),
)  # fmt: skip
