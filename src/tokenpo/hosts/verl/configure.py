"""Builds the objective of `algorithm.tokenpo`, and changes or refuses verl's own settings for it."""

# pyright: reportMissingImports=false
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from omegaconf import DictConfig, OmegaConf, open_dict

from ...base.errors import TokenPOError, refuse
from ...core import parts
from ...core.negotiation import schedule_notes
from ...core.objective import Objective
from ...core.parts import Rejection, walk
from ...core.ranges import Positive, whole
from ...core.request_temperature import PROCESSOR
from ...methods import Teaching, build_method, extended, from_text
from ...methods.extensions import Form
from . import correction, lacking
from .settings import ROLLOUT, SETTINGS

PLACE = "algorithm.tokenpo"
PROCESSORS = f"{ROLLOUT}.engine_kwargs.vllm.logits_processors"
_REF_ROWS = "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"
Table = Mapping[str, Any] | None
Whole = Annotated[int, whole(0)]


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
    trace_every: Whole = 10
    trace_rollouts: Whole = 4


@dataclass(frozen=True)
class Settings:
    """A run's settings under algorithm.tokenpo."""

    objective: Objective  # with its shaping, corrections and penalties
    keys: Keys
    notes: tuple[str, ...] = ()  # changes of verl's config, and warnings

    @property
    def report(self) -> Path | None:
        """The run directory for `tokenpo report`, absolute, because workers have working directories of their own."""
        return Path(self.keys.report).absolute() if self.keys.report else None


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
        raise TokenPOError(f"trainer.v1.trainer_mode=tokenpo needs a method: add +{PLACE}.method=grpo")
    idle = [key for key in ("trace_every", "trace_rollouts") if key in raw and "report" not in raw]
    flat = [key for key in ("options", *TABLES) if not isinstance(raw.get(key) or {}, Mapping)]
    refuse(
        [
            *(f"{PLACE}.{key} has no effect without a report: add +{PLACE}.report=DIR, or drop it" for key in idle),
            *(f"{PLACE}.{key} = {raw[key]!r}: expected options of it, as in +{PLACE}.{key}.KEY=VALUE" for key in flat),
        ],
        TokenPOError,
    )
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
    return extended(objective, correction=preset, labels={"correction": correction.PLACE}), [note]


def _faults(config: DictConfig, objective: Objective) -> Iterator[str]:
    yield from lacking(objective)
    for setting in SETTINGS:
        default = next(iter(setting.only), None)
        value = OmegaConf.select(config, setting.key, default=default)
        if not setting.allows(value, objective):
            yield (
                f"{objective.name} in verl leaves no room for {setting.key}={value} ({setting.why or setting.words}): "
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
