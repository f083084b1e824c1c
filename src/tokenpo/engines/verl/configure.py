"""Builds the objective of `algorithm.tokenpo`, and changes or refuses verl's own settings for it."""

# pyright: reportMissingImports=false
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from ...base.errors import TokenPOError, UnknownName, Unsupported, nearest
from ...core.negotiation import schedule_notes
from ...core.objective import Objective
from ...core.parts import Rejection, walk
from ...methods.corrections import applied
from ...models.request_temperature import PROCESSOR
from ...recipe.config import Config, parse_config
from ...recipe.objective import build_objective
from . import correction, require_inputs
from .settings import PLACES, ROLLOUT, SETTINGS

PLACE = "algorithm.tokenpo"
PROCESSORS = f"{ROLLOUT}.engine_kwargs.vllm.logits_processors"
_REF_ROWS = "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"


@dataclass(frozen=True)
class Settings:
    """A run's settings under algorithm.tokenpo."""

    objective: Objective  # with its shaping, corrections and penalties
    recipe: Config = Config()  # our keys
    notes: tuple[str, ...] = ()  # changes of verl's config, and warnings

    @property
    def report(self) -> Path | None:
        """The run directory for `tokenpo report`, absolute, because workers have working directories of their own."""
        return Path(self.recipe.output.dir).absolute() if self.recipe.output.dir else None


def configure(config: DictConfig) -> Settings:
    """The settings of a run; changes verl's config for its objective in place.

    Raises:
        UnknownName: a key, method or option that does not exist.
        Unsupported: verl can't deliver an input, or a setting of verl's would be ignored.
    """
    recipe = _recipe(config)
    with open_dict(config):
        objective, notes = _corrected(config, build_objective(recipe))
        _refuse(config, objective)
        notes += _set(config, objective)
    return Settings(objective, recipe, (*notes, *_warnings(config, objective)))


def _recipe(config: DictConfig) -> Config:
    """algorithm.tokenpo as a recipe; its errors name the keys of algorithm.tokenpo."""
    section = config.algorithm.get("tokenpo")
    raw: Any = OmegaConf.to_container(section, resolve=True) if isinstance(section, DictConfig) else section
    if not isinstance(raw, Mapping) or not isinstance(raw.get("method"), str):
        raise TokenPOError(f"trainer.v1.trainer_mode=tokenpo needs a method: add +{PLACE}.method=grpo")
    known = {"method", "options", *PLACES}
    for key in raw:
        if key not in known:
            raise UnknownName(f"{PLACE} has no key {key!r}: {nearest(str(key), known)}")
    if not isinstance(raw.get("options", {}), Mapping):
        raise TokenPOError(f"{PLACE}.options = {raw['options']!r}: expected options of the method, as in options.low=1")
    for key in ("trace_every", "trace_rollouts"):
        if key in raw and "report" not in raw:
            raise TokenPOError(f"{PLACE}.{key} has no effect without a report: add +{PLACE}.report=DIR, or drop it")
    sections: dict[str, Any] = {
        "name": "verl",
        "method": {"name": raw["method"], **raw.get("options", {})},
        "rollout": {"max_new_tokens": config.data.max_response_length},
    }
    keys: dict[tuple[str, ...], str] = {("method",): f"+{PLACE}.options"}
    for key, (section, name) in PLACES.items():
        if raw.get(key) is not None:
            sections.setdefault(section, {})[name] = raw[key]
            keys[section, name] = f"+{PLACE}.{key}"
    return parse_config(sections, PLACE, keys)


def _corrected(config: DictConfig, objective: Objective) -> tuple[Objective, list[str]]:
    """The objective with verl's rollout correction as weights, and a note; the correction is switched off in verl."""
    section: Any = OmegaConf.select(config, correction.PLACE)
    settings: dict[str, Any] = {} if section is None else dict(section)
    if all(settings.get(key, default) == default for key, default in correction.KEYS.items()):
        return objective, []
    preset = correction.preset_of(settings)
    for key, default in correction.KEYS.items():
        OmegaConf.update(config, f"{correction.PLACE}.{key}", default)
    weights = " · ".join(map(repr, preset.weights)) or "no weight"
    bypass = ", and the policy that sampled in the place of the old one" if preset.bypass else ""
    note = f"{correction.PLACE} became, in {objective.name}: {weights}{bypass}; verl itself corrects nothing"
    return applied(objective, preset, correction.PLACE), [note]


def _refuse(config: DictConfig, objective: Objective) -> None:
    require_inputs(objective)
    for setting in SETTINGS:
        default = next(iter(setting.only), None)
        value = OmegaConf.select(config, setting.key, default=default)
        if not setting.allows(value, objective):
            raise Unsupported(
                f"{objective.name} in verl leaves no room for {setting.key}={value} ({setting.why or setting.words}): "
                + (setting.remedy or f"set {setting.key}={'null' if default is None else default}")
            )
    if any(isinstance(part, Rejection) and part.leaves for part in walk(objective)):
        raise Unsupported(
            f"{objective.name}: correction.leaves = true: verl counts the tokens of a step itself, rejected ones "
            f"included: set +{PLACE}.correction.leaves=false"
        )


def _set(config: DictConfig, objective: Objective) -> list[str]:
    """Changes verl's settings for the objective; one note for each."""
    changes = {setting.key: setting.becomes for setting in SETTINGS if setting.set_where(objective)}
    ref = config.actor_rollout_ref.ref
    if "ref_logprob" in objective.needs and not (
        ref.get("log_prob_micro_batch_size_per_gpu") or ref.get("log_prob_micro_batch_size")
    ):
        changes[_REF_ROWS] = config.actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu
    if objective.critic is not None:
        changes["critic.cliprange_value"] = objective.critic.clip
    if objective.temperature is not None and config.actor_rollout_ref.rollout.name == "vllm":
        changes[PROCESSORS] = list(dict.fromkeys([*(OmegaConf.select(config, PROCESSORS) or []), PROCESSOR]))
    OmegaConf.update(config, "trainer.v1.trainer_mode", "sync")
    notes = []
    for key, value in changes.items():
        if value != (before := OmegaConf.select(config, key)):
            notes.append(f"set {key}={value} (was {before}) for {objective.name}")
        OmegaConf.update(config, key, value)
    return notes


def _warnings(config: DictConfig, objective: Objective) -> list[str]:
    """Notes on settings that are allowed but probably not intended."""
    actor = config.actor_rollout_ref.actor
    updates = actor.ppo_epochs * max(1, config.data.train_batch_size // actor.ppo_mini_batch_size)
    size = "actor_rollout_ref.actor.ppo_mini_batch_size"
    once = f"set {size} to data.train_batch_size and actor_rollout_ref.actor.ppo_epochs to 1"
    notes = schedule_notes(objective, updates, f"lower {size}", once)
    if config.actor_rollout_ref.rollout.n == 1:
        notes.append("actor_rollout_ref.rollout.n is 1: a group of one has no advantage over itself")
    return notes
