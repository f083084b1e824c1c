"""What a run asks for under `algorithm.tokenpo`, and verl's own settings: set for the objective, or refused."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from ...base.errors import TokenPOError, UnknownName, Unsupported, nearest
from ...core.negotiation import schedule_notes
from ...core.objective import Objective
from ...core.parts import AdaptiveTemperature, Rejection, walk
from ...methods.corrections import applied
from ...models.request_temperature import PROCESSOR
from ...recipe.config import parse_config
from ...recipe.objective import build_objective
from . import correction, require_inputs
from .fields import REFUSED
from .temperature import LOOP, LOOPS

PLACE = "algorithm.tokenpo"
# Our key -> section of a recipe.
_SECTIONS = {
    "soft_overlong": "rollout",
    "group_overlong": "rollout",
    "correction": "rollout",
    "reference_kl": "train",
}
# Our key -> its kinds, which of their values it takes, and both in words.
_OWN: dict[str, tuple[tuple[type, ...], Callable[[Any], bool], str]] = {
    "options": ((dict,), lambda options: True, "options of the method, as in options.low=0.1"),
    "nonfinite": ((str,), ("stop", "skip").__contains__, "stop or skip"),
    "ratio_tolerance": ((int, float), lambda nats: nats > 0, "a number above 0"),
    "report": ((str,), bool, "a path"),
    "trace_every": ((int,), lambda steps: steps >= 0, "a whole number of steps, 0 for no traces"),
    "trace_rollouts": ((int,), lambda rows: rows >= 0, "a whole number of responses, 0 for no traces"),
}

_STRATEGIES = ("fsdp", "fsdp2")


@dataclass(frozen=True)
class Settings:
    """algorithm.tokenpo of a run.

    Args:
        objective: the method with what goes with it.
        tolerance: nats, the largest mean |log-ratio| before the first update.
        report: directory for what `tokenpo report` reads; None writes nothing.
        trace_every: steps between traces of single tokens; 0 for none.
        trace_rollouts: responses of one trace.
        nonfinite: "stop" the run after an update whose gradient is not finite, or let verl "skip" it.
        notes: what was set in verl's config, and what is unlikely to be meant.
    """

    objective: Objective
    tolerance: float
    report: str | None = None
    trace_every: int = 10
    trace_rollouts: int = 4
    nonfinite: str = "stop"
    notes: tuple[str, ...] = field(default=())


def configure(config: DictConfig) -> Settings:
    """The objective of the run; verl's config is set for it, in place, before verl's trainer reads it.

    Raises:
        UnknownName: a key, method or option that does not exist.
        Unsupported: verl can't deliver an input, or a setting of verl's would be ignored.
    """
    raw = _raw(config)
    objective, notes = _corrected(config, build_objective(parse_config(_recipe(raw, config), PLACE)))
    _refuse(config, objective)
    notes += [*_turn_on(config, objective), *_warnings(config, objective)]
    own = {key: raw[key] for key in ("report", "trace_every", "trace_rollouts", "nonfinite") if key in raw}
    if own.get("report") is not None:
        own["report"] = str(Path(own["report"]).absolute())  # workers have directories of their own
    return Settings(objective, float(raw.get("ratio_tolerance", 0.05)), notes=tuple(notes), **own)


def _corrected(config: DictConfig, objective: Objective) -> tuple[Objective, list[str]]:
    """With verl's own correction for the policy that sampled as weights; verl then has none to apply."""
    section: Any = OmegaConf.select(config, correction.PLACE)
    asked: dict[str, Any] = {} if section is None else dict(section)
    if all(asked.get(key, usual) == usual for key, usual in correction.KEYS.items()):
        return objective, []
    preset = correction.preset_of(asked)
    with open_dict(config):
        for key, usual in correction.KEYS.items():
            OmegaConf.update(config, f"{correction.PLACE}.{key}", usual)
    weights = " · ".join(map(repr, preset.weights)) or "no weight"
    bypass = ", and the policy that sampled in the place of the old one" if preset.bypass else ""
    note = f"{correction.PLACE} became, in {objective.name}: {weights}{bypass}; verl itself corrects nothing"
    return applied(objective, preset, correction.PLACE), [note]


def _raw(config: DictConfig) -> dict[str, Any]:
    section = config.algorithm.get("tokenpo")
    if section is None or not isinstance(section, Mapping | DictConfig):
        raise TokenPOError(f"trainer.v1.trainer_mode=tokenpo needs a method: add +{PLACE}.method=grpo")
    raw: Any = OmegaConf.to_container(section, resolve=True) if isinstance(section, DictConfig) else dict(section)
    known = {"method", *_SECTIONS, *_OWN}
    for key in raw:
        if key not in known:
            raise UnknownName(f"{PLACE} has no key {key!r}: {nearest(str(key), known)}")
    if not isinstance(raw.get("method"), str):
        raise TokenPOError(f"{PLACE}.method names no method: add +{PLACE}.method=grpo")
    for key, (kinds, takes, words) in _OWN.items():
        if key in raw and (isinstance(raw[key], bool) or not isinstance(raw[key], kinds) or not takes(raw[key])):
            raise TokenPOError(f"{PLACE}.{key} = {raw[key]!r}: expected {words}")
    for key in ("trace_every", "trace_rollouts"):
        if key in raw and "report" not in raw:
            raise TokenPOError(
                f"{PLACE}.{key} has no effect without a report: add +{PLACE}.report=DIR, or leave it out"
            )
    return raw


def _recipe(raw: Mapping[str, Any], config: DictConfig) -> dict[str, Any]:
    """The sections of a recipe that make the same objective."""
    method = {"name": raw["method"], **raw.get("options", {})}
    recipe: dict[str, Any] = {
        "name": "verl", "method": method, "rollout": {"max_new_tokens": config.data.max_response_length}, "train": {},
    }  # fmt: skip
    for key, section in _SECTIONS.items():
        if raw.get(key) is not None:
            recipe[section][key] = raw[key]
    return recipe


def _refuse(config: DictConfig, objective: Objective) -> None:
    for name, value, remedy in REFUSED:
        current = OmegaConf.select(config, name, default=value)
        if name == "critic.enable" and current is None:
            continue  # verl then follows adv_estimator
        if current != value:
            raise Unsupported(
                f"{name}={current} would be ignored by {objective.name} in tokenpo's trainer for verl ({remedy}): set "
                f"{name}={'null' if value is None else value}"
            )
    strategy = config.actor_rollout_ref.actor.strategy
    if strategy not in _STRATEGIES:
        raise Unsupported(
            f"actor_rollout_ref.actor.strategy={strategy}: tokenpo's loss ran in verl's FSDP engines only, set "
            "actor_rollout_ref.actor.strategy=fsdp2"
        )
    require_inputs(objective)
    _refuse_sampling(config, objective)
    multi = objective.scope == "batch" or len(objective.split()) > 1
    if multi and not _constant_rate(config):
        raise Unsupported(
            f"{objective.name} takes its optimiser steps one by one, and verl would advance the learning-rate "
            "schedule after each: set actor_rollout_ref.actor.optim.lr_scheduler_type=constant, warmup_style=null, "
            "lr_warmup_steps=0 and lr_warmup_steps_ratio=0"
        )
    _refuse_filter(config, objective)


def _refuse_sampling(config: DictConfig, objective: Objective) -> None:
    rollout = config.actor_rollout_ref.rollout
    for name, whole in (("top_p", 1), ("top_k", -1)):
        value = rollout.get(name, whole)
        if "rollout_logprob" in objective.needs and value not in (whole, 0 if name == "top_k" else whole):
            raise Unsupported(
                f"{objective.name} reads rollout_logprob, which is reported of the tokens that {name} = {value} keeps, "
                f"and scored by verl over the whole vocabulary: set actor_rollout_ref.rollout.{name}={whole}"
            )
    if any(isinstance(part, Rejection) and part.leaves for part in walk(objective)):
        raise Unsupported(
            f"{objective.name}: correction.leaves = true: verl counts the tokens of a step itself, rejected ones "
            f"included: set +{PLACE}.correction.leaves=false"
        )


def _constant_rate(config: DictConfig) -> bool:
    optim = config.actor_rollout_ref.actor.optim
    warm = optim.get("lr_warmup_steps", -1)
    warmup = warm if warm is not None and warm >= 0 else optim.get("lr_warmup_steps_ratio", 0.0)
    # verl puts the deprecated name over the other.
    kind = optim.get("warmup_style") or optim.get("lr_scheduler_type", "constant")
    return kind == "constant" and not warmup


def _refuse_filter(config: DictConfig, objective: Objective) -> None:
    if not OmegaConf.select(config, "algorithm.filter_groups.enable", default=False):
        return
    # The entropy scale is measured over the rollouts that are trained on, as HAPO's authors do; a controller or a
    # running mean of all that was drawn would be fed a biased half of it.
    blind = [part for part in objective.memories if not isinstance(part, AdaptiveTemperature)]
    if blind:
        raise Unsupported(
            f"{objective.name}: {type(blind[0]).__name__} must see every rollout that is drawn, and verl drops groups "
            "before their entropies are known: set algorithm.filter_groups.enable=False"
        )


def _turn_on(config: DictConfig, objective: Objective) -> list[str]:
    """Turns on in verl what the objective reads; one line for each setting that changed."""
    changes: dict[str, Any] = {"trainer.v1.trainer_mode": "sync"}
    if "entropy" in objective.needs:
        changes["actor_rollout_ref.actor.calculate_entropy"] = True
    if "rollout_logprob" in objective.needs:
        changes["actor_rollout_ref.rollout.calculate_log_probs"] = True
    if "ref_logprob" in objective.needs:
        # verl starts its reference for this setting; the penalty itself is the objective's.
        changes["actor_rollout_ref.actor.use_kl_loss"] = True
        ref = config.actor_rollout_ref.ref
        if ref.get("log_prob_micro_batch_size_per_gpu") is None and ref.get("log_prob_micro_batch_size") is None:
            size = config.actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu
            changes["actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"] = size
    if objective.temperature is not None:
        changes["actor_rollout_ref.rollout.agent.default_agent_loop"] = _loop(config, objective)
        if config.actor_rollout_ref.rollout.name == "vllm":
            place = "actor_rollout_ref.rollout.engine_kwargs.vllm.logits_processors"
            changes[place] = list(dict.fromkeys([*(OmegaConf.select(config, place) or []), PROCESSOR]))
    notes = []
    for name, value in changes.items():
        before = OmegaConf.select(config, name)
        if before != value:
            with open_dict(config):
                OmegaConf.update(config, name, value)
            if name != "trainer.v1.trainer_mode":
                notes.append(f"set {name}={value} (was {before}) for {objective.name}")
    return notes


def _loop(config: DictConfig, objective: Objective) -> str:
    rollout = config.actor_rollout_ref.rollout
    if rollout.name in ("sglang", "trtllm"):
        raise Unsupported(
            f"{objective.name} adapts the temperature from token to token, which tokenpo's trainer for verl can tell "
            f"vLLM and not {rollout.name}: set actor_rollout_ref.rollout.name=vllm, or +{PLACE}.options.tau=0"
        )
    loop = rollout.agent.default_agent_loop
    if loop not in LOOPS:
        raise Unsupported(
            f"{objective.name} adapts the temperature from token to token, and verl's agent loop {loop} does not pass "
            f"its statistics on: set actor_rollout_ref.rollout.agent.default_agent_loop={LOOP}, or switch the "
            f"adaptive temperature off with +{PLACE}.options.tau=0"
        )
    return LOOP


def _warnings(config: DictConfig, objective: Objective) -> list[str]:
    """What is allowed but unlikely to be meant."""
    actor = config.actor_rollout_ref.actor
    updates = actor.ppo_epochs * max(1, config.data.train_batch_size // actor.ppo_mini_batch_size)
    size = "actor_rollout_ref.actor.ppo_mini_batch_size"
    once = f"set {size} to data.train_batch_size and actor_rollout_ref.actor.ppo_epochs to 1"
    notes = schedule_notes(objective, updates, f"lower {size}", once)
    if config.actor_rollout_ref.rollout.n == 1:
        notes.append("actor_rollout_ref.rollout.n is 1: a group of one has no advantage over itself")
    return notes
