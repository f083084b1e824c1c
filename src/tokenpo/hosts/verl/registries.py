"""Our losses and credit in verl's own registries, for verl's own trainers:

    actor_rollout_ref.actor.policy_loss.loss_mode=tokenpo/cispo algorithm.adv_estimator=tokenpo/cispo

verl gives such a loss advantages and log-probabilities, and an estimator rewards and groups.
"""

# pyright: reportMissingImports=false
import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from ...base.errors import refuse
from ...core.objective import Objective
from ...core.ops import turns
from ...core.parts import Aggregate, ConstantLength, SequenceMean, TokenMean, TokenSum
from ...core.types import Batch, Credit, Policy, Totals
from ...methods import METHODS, method
from ..advantage_only import bare, remedy, reward_credit, unaged, unfit
from . import lacking
from .configure import CORRECTION, KEYS
from .settings import ACTOR, SETTINGS, Setting

PREFIX, HOST = "tokenpo/", "verl's registry"
LOSS_MODE, ESTIMATOR = f"{ACTOR}.policy_loss.loss_mode", "algorithm.adv_estimator"
PROVIDES = frozenset({"token_reward", "turn"})
MODES: dict[Aggregate, str] = {
    TokenMean(): "token-mean",
    TokenSum(): "token-sum",
    SequenceMean(): "seq-mean-token-mean",
    ConstantLength(1.0): "seq-mean-token-sum",
    ConstantLength(): "seq-mean-token-sum-norm",
}
# Settings of verl's own losses, which ours do not read.
_THEIRS = tuple(f"{ACTOR}.{name}" for name in ("policy_loss.", "clip_ratio", "tau_"))
# Settings of verl's own estimators, and of the critic that GAE reads.
_CREDIT = {
    *(f"algorithm.{name}" for name in ("norm_adv_by_std_in_grpo", "gamma", "lam", "use_pf_ppo")),
    "critic.enable",
    "trainer.critic_warmup",
}


def register() -> None:
    """Puts the name of every method into both registries of this process."""
    from verl.trainer.ppo.core_algos import register_adv_est, register_policy_loss

    for name in METHODS:
        register_policy_loss(PREFIX + name)(functools.partial(policy_loss, name))
        register_adv_est(PREFIX + name)(functools.partial(advantages, name))


def check(config: DictConfig, *, stale: bool = False) -> list[str]:
    """The settings by which verl's own trainer uses ours, as text; Unsupported if one of them does not fit.

    `stale`: the trainer is asynchronous, so that an older policy than the current one sampled.
    """
    settings = {place: str(OmegaConf.select(config, place)) for place in (LOSS_MODE, ESTIMATOR)}
    ours = {place: name.removeprefix(PREFIX) for place, name in settings.items() if name.startswith(PREFIX)}
    checks = {LOSS_MODE: functools.partial(_of_loss, stale=stale), ESTIMATOR: _of_credit}
    refuse(fault for place, name in ours.items() for fault in checks[place](fitting(name), config))
    return [f"{place}={settings[place]}" for place in ours]


@functools.cache
def fitting(name: str) -> Objective:
    """The method with its defaults; raises Unsupported like `require`."""
    objective = method(name)
    require(objective)
    return objective


def require(objective: Objective) -> None:
    """Raises Unsupported if verl's registries lack an input of the objective, or verl lacks its aggregation."""
    unknown = f"verl's loss_agg_mode has no {objective.aggregate}: {_instead(objective)}"
    others = unfit(objective, PROVIDES, HOST, credit=True, instead=_instead(objective))
    refuse([*others, None if objective.aggregate in MODES else unknown])


def policy_loss(
    name: str,
    *,
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of a micro-batch [N, T] and its metrics, with verl's denominators; raises Unsupported like `fitting`."""
    objective = fitting(name)
    batch_info = {} if config is None else config.global_batch_info
    ignored = f"{name} in {HOST} would ignore the weights of {CORRECTION}: {_instead(objective)}"
    wrong = _of_mode(objective, loss_agg_mode, batch_info.get("loss_scale_factor"))
    refuse([*wrong, None if rollout_is_weights is None else ignored])
    mask, live = response_mask.bool(), response_mask.any(1)
    if not live.any():  # padding rows alone: a zero with its graph, so that every rank runs backward
        return torch.where(mask, log_prob, 0.0).sum(), {}
    rollouts = bare(mask, old_log_prob, turn=turns.numbered(mask)).only(objective.needs)
    batch = Batch(rollouts, Credit(advantages.where(mask, 0.0)), Policy(log_prob)).rows(live)
    counted = Totals.of(batch.rollouts, batch_info.get("loss_scale_factor"))
    totals = Totals(
        float(batch_info.get("batch_num_tokens") or counted.tokens),
        float(batch_info.get("global_batch_size") or counted.sequences),
        counted.length,
    )
    loss = objective.loss(batch, totals, ("clipped", "weight"))
    log_ratio = (batch.policy.logprob - batch.rollouts.old_logprob).detach()
    of_tokens = {
        "pg_clipfrac": loss.terms["clipped"],
        "ppo_kl": -log_ratio,
        f"{PREFIX}{name}/weight": loss.terms["weight"],
    }
    metrics = {f"actor/{key}": float(x[batch.mask].double().mean()) for key, x in of_tokens.items()}
    return loss.value * batch_info.get("dp_size", 1), metrics


def advantages(
    name: str, *, token_level_rewards: Tensor, response_mask: Tensor, index: Sequence[Hashable], **others: Any
) -> tuple[Tensor, Tensor]:
    """verl's advantages and returns of the rollout batch, [N, T] each; raises Unsupported like `fitting`."""
    advantage = reward_credit(fitting(name), token_level_rewards, response_mask, index)
    return advantage, advantage


def _instead(objective: Objective) -> str:
    """A remedy in words: the settings of our trainer in verl, if it has the objective's inputs."""
    if any(lacking(objective)):
        return remedy(objective)
    return (
        f"in the place of {PREFIX}{objective.name}, set trainer.v1.trainer_mode=tokenpo algorithm.adv_estimator=grpo "
        f"+algorithm.tokenpo.method={objective.name}"
    )


def _of_loss(objective: Objective, config: DictConfig, *, stale: bool) -> Iterator[str]:
    actor = config.actor_rollout_ref.actor
    yield from _of_mode(objective, actor.loss_agg_mode, actor.loss_scale_factor)
    theirs = lambda key: key.startswith(_THEIRS) and key != LOSS_MODE  # noqa: E731
    for setting, value in _unread(objective, config, theirs):
        default = "null" if setting.only[0] is None else setting.only[0]
        yield (
            f"{objective.name} in {HOST} does not read {setting.key}={value}: set {setting.key}={default}, or "
            f"{_instead(objective)}, where options are given"
        )
    settings = {key: OmegaConf.select(config, f"{CORRECTION}.{key}", default=usual) for key, usual in KEYS.items()}
    if stale:
        yield from unaged(objective, "verl's asynchronous trainer")
        if not settings.pop("bypass_mode"):
            yield (
                f"verl's asynchronous trainer gives {objective.name} the ratio to a later policy than the one that "
                f"sampled: set {CORRECTION}.bypass_mode=True"
            )
    for key, value in settings.items():
        if value != KEYS[key]:
            yield f"{objective.name} in {HOST} would ignore {CORRECTION}.{key}={value}: {_instead(objective)}"


def _of_credit(objective: Objective, config: DictConfig) -> Iterator[str]:
    for setting, value in _unread(objective, config, _CREDIT.__contains__):
        yield (
            f"{objective.name} in {HOST} does not read {setting.key}={value} ({setting.why or setting.words}): set "
            f"{setting.key}={setting.only[0]}"
        )


def _unread(
    objective: Objective, config: DictConfig, theirs: Callable[[str], bool]
) -> Iterator[tuple[Setting, object]]:
    """Yields the settings, and their values, that only verl's own losses or estimators would read."""
    for setting in SETTINGS:
        value = OmegaConf.select(config, setting.key, default=next(iter(setting.only), None))
        if theirs(setting.key) and not setting.allows(value, objective):
            yield setting, value


def _of_mode(objective: Objective, mode: str, length: float | None) -> Iterator[str]:
    required = MODES[objective.aggregate]
    if mode != required:
        yield (
            f"{objective.name} averages by {objective.aggregate}, and verl's {ACTOR}.loss_agg_mode={mode} says "
            f"otherwise: set {ACTOR}.loss_agg_mode={required}"
        )
    if objective.aggregate == ConstantLength() and length is None:
        yield (
            f"{objective.name} divides by one length, and verl by the longest response of each micro-batch where "
            f"{ACTOR}.loss_scale_factor is null: set it to data.max_response_length"
        )
