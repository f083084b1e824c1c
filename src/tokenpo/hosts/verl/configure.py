"""Builds the objective of `algorithm.tokenpo`, and changes or rejects verl's own settings for it."""

# pyright: reportMissingImports=false
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf, open_dict

from ...base.errors import TokenPOError, choose, refuse
from ...core import parts
from ...core.negotiation import schedule_notes
from ...core.objective import Objective
from ...core.parts import Rejection, walk
from ...core.ranges import Positive
from ...core.request_temperature import PROCESSOR
from ...methods import Teaching, build_method, extended, from_text
from ...methods.extensions import Form, Preset
from . import lacking
from .settings import ROLLOUT, SETTINGS

PLACE = "algorithm.tokenpo"
PROCESSORS = f"{ROLLOUT}.engine_kwargs.vllm.logits_processors"
_REF_ROWS = "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"
CORRECTION = "algorithm.rollout_correction"
# Key -> verl's default, which corrects nothing.
KEYS: dict[str, Any] = {
    "rollout_is": None,
    "rollout_is_threshold": 2.0,
    "rollout_is_batch_normalize": False,
    "rollout_rs": None,
    "rollout_rs_threshold": None,
    "bypass_mode": False,
    "loss_type": "ppo_clip",
}
_LEVELS = {"token": parts.EachToken(), "seq_sum": parts.Total(), "seq_mean": parts.Mean(), "seq_max": parts.Every()}
# Name of a rejection -> (level, divergence); None means the ratio.
_REJECTIONS: dict[str, tuple[parts.Level, parts.Estimator | None]] = {
    f"{judged}_{kind}": (level, of)
    for judged, level in _LEVELS.items()
    for kind, of in {"k1": None, "k2": parts.K2(), "k3": parts.K3()}.items()
    if (judged, kind) != ("seq_max", "k1")
}
Table = Mapping[str, Any] | None


@dataclass(frozen=True)
class Keys:
    """The keys of algorithm.tokenpo; docs/verl.md describes them."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    soft_overlong: Table = None
    group_overlong: Table = None
    correction: Table = None
    reference_kl: Table = None
    teacher_coef: Positive | None = None
    teacher_form: Form = "credit"
    nonfinite: Literal["stop", "skip"] = "stop"
    ratio_tolerance: Positive | None = None
    report: str | None = None


@dataclass(frozen=True)
class Settings:
    objective: Objective  # with its shaping, corrections and penalties
    keys: Keys
    notes: tuple[str, ...] = ()  # changes of verl's config, and warnings


def configure(config: DictConfig) -> Settings:
    """The settings of a run; changes verl's config for its objective in place.

    Raises:
        UnknownName: a key, method or option that does not exist.
        Unsupported: verl can't deliver an input, or a setting of verl's would be ignored.
    """
    keys = _keys(config)
    with open_dict(config):
        objective, notes = _corrected(config, _objective(keys, config.data.max_response_length))
        refuse(_faults(config, objective))
        notes += _set(config, objective)
    return Settings(objective, keys, (*notes, *_warnings(config, objective)))


def _keys(config: DictConfig) -> Keys:
    """Reads algorithm.tokenpo; a key of null is not set."""
    section = config.algorithm.get("tokenpo")
    raw: Any = OmegaConf.to_container(section, resolve=True) if isinstance(section, DictConfig) else section
    if not isinstance(raw, Mapping) or not isinstance(raw.get("method"), str):
        raise TokenPOError(f"trainer.v1.trainer_mode=tokenpo needs a method: add +{PLACE}.method=dapo")
    flat = [key for key in ("options", *TABLES) if not isinstance(raw.get(key) or {}, Mapping)]
    faults = [f"{PLACE}.{key} = {raw[key]!r}: expected options of it, as in +{PLACE}.{key}.KEY=VALUE" for key in flat]
    refuse(faults, TokenPOError)
    return from_text.read(f"+{PLACE}", Keys, {key: value for key, value in raw.items() if value is not None})


# Key -> builder of its part, or of a keyword of `extended`.
TABLES: Mapping[str, Callable[..., Any]] = {
    "soft_overlong": parts.SoftOverlong,
    "group_overlong": parts.GroupOverlong,
    "correction": from_text.correction,
    "reference_kl": from_text.reference_kl,
}


def _objective(keys: Keys, length: int) -> Objective:
    """The method with what the other keys add to it."""
    usual = {"soft_overlong": {"length": length}}
    made = {
        key: from_text.read(f"+{PLACE}.{key}", build, {**usual.get(key, {}), **table})
        for key, build in TABLES.items()
        if (table := getattr(keys, key)) is not None
    }
    return extended(
        build_method(keys.method, keys.options),
        reference=made.get("reference_kl"),
        correction=made.get("correction"),
        teacher=None if keys.teacher_coef is None else Teaching(float(keys.teacher_coef), keys.teacher_form),
        shaping=[made[key] for key in ("soft_overlong", "group_overlong") if key in made],
        labels={
            "reference": f"+{PLACE}.reference_kl",
            "correction": f"+{PLACE}.correction",
            "teacher": f"+{PLACE}.teacher_coef",
        },
    )


def _corrected(config: DictConfig, objective: Objective) -> tuple[Objective, list[str]]:
    """The objective with verl's rollout correction as weights, and a note; the correction is switched off in verl."""
    section: Any = OmegaConf.select(config, CORRECTION)
    settings: dict[str, Any] = {} if section is None else dict(section)
    if all(settings.get(key, default) == default for key, default in KEYS.items()):
        return objective, []
    preset = preset_of(settings)
    for key, default in KEYS.items():
        OmegaConf.update(config, f"{CORRECTION}.{key}", default)
    weights = " · ".join(map(repr, preset.weights)) or "no weight"
    bypass = ", and the policy that sampled in the place of the old one" if preset.bypass else ""
    note = f"{CORRECTION} became, in {objective.name}: {weights}{bypass}; verl itself corrects nothing"
    return extended(objective, correction=preset, labels={"correction": CORRECTION}), [note]


def _faults(config: DictConfig, objective: Objective) -> Iterator[str]:
    yield from lacking(objective)
    for setting in SETTINGS:
        default = next(iter(setting.only), None)
        value = OmegaConf.select(config, setting.key, default=default)
        if not setting.allows(value, objective):
            yield (
                f"{objective.name} in verl does not support {setting.key}={value} ({setting.why or setting.words}): "
                + (setting.remedy or f"set {setting.key}={'null' if default is None else default}")
            )
    if any(isinstance(part, Rejection) and part.leaves for part in walk(objective)):
        yield (
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


def preset_of(section: Mapping[str, Any]) -> Preset:
    """The preset for verl's keys; raises UnknownName for a name, TokenPOError for a threshold."""
    settings = {key: section.get(key, default) for key, default in KEYS.items()}
    bypass = bool(settings["bypass_mode"])
    plain = choose(f"{CORRECTION}.loss_type", settings["loss_type"], {"ppo_clip": False, "reinforce": True})
    if plain and not bypass:
        raise TokenPOError(
            f"{CORRECTION}.loss_type=reinforce needs bypass_mode=True: set it, or loss_type=ppo_clip and "
            "+algorithm.tokenpo.method=gpg"
        )
    weights: tuple[parts.Weight, ...] = ()
    # A clipped ratio to the sampler already corrects; verl then uses the weights in its metrics only.
    if settings["rollout_is"] is not None and (plain or not bypass):
        weights += (_weight(settings, current=bypass),)
    if settings["rollout_rs"] is not None:
        weights += (_rejection(str(settings["rollout_rs"]), settings["rollout_rs_threshold"], current=bypass),)
    return Preset(weights, bypass, plain)


def _weight(settings: Mapping[str, Any], *, current: bool) -> parts.Weight:
    sequence = choose(f"{CORRECTION}.rollout_is", settings["rollout_is"], {"token": False, "sequence": True})
    low, high = _bounds("rollout_is_threshold", settings["rollout_is_threshold"])
    weight = parts.RolloutCorrection(sequence, low is not None, high, low or 0.0, current=current)
    if not settings["rollout_is_batch_normalize"]:
        return weight
    if current:
        raise TokenPOError(
            f"{CORRECTION}.rollout_is_batch_normalize with bypass_mode would divide by the mean of each micro-batch, "
            "under a policy that moves: set it to False"
        )
    return parts.NormalisedWeight(weight, parts.RolloutMean(weight))


def _rejection(names: str, thresholds: Any, *, current: bool) -> parts.Rejection:
    kinds = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    bounds = [one.strip() for one in str(thresholds).split(",")]
    if thresholds is None or len(bounds) not in (1, len(kinds)):
        raise TokenPOError(f"{CORRECTION}.rollout_rs_threshold = {thresholds!r}: give one, or one for each of {names}")
    bounds = bounds * len(kinds) if len(bounds) == 1 else bounds
    return parts.Rejection(tuple(_criterion(*pair) for pair in zip(kinds, bounds, strict=True)), current=current)


def _criterion(name: str, threshold: str) -> parts.Criterion:
    level, of = choose(f"{CORRECTION}.rollout_rs", name, _REJECTIONS)
    low, high = _bounds("rollout_rs_threshold", threshold)
    if of is not None:
        if low is not None:
            raise TokenPOError(f"{CORRECTION}.rollout_rs_threshold = {threshold!r}: {name} has an upper bound only")
        return parts.Criterion(level, high=high, of=of)
    # verl's k1 is −log ρ: its bounds are those of 1/ρ.
    return parts.Criterion(level, 1 / high, 1 / (1 / high if low is None else low))


def _bounds(key: str, threshold: Any) -> tuple[float | None, float]:
    """(lower, upper) from "upper" or "lower_upper", all above 0; lower is None for "upper"."""
    try:
        *low, high = (float(bound) for bound in str(threshold).split("_", 1))
    except ValueError:
        low, high = [], math.nan
    if not all(0 < bound < math.inf for bound in (*low, high)):
        raise TokenPOError(
            f"{CORRECTION}.{key} = {threshold!r} is not a threshold above 0: write 2.0, or '0.5_5.0' for two ends"
        )
    return (low[0] if low else None), high
