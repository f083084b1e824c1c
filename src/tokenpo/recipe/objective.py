"""Build the objective of a recipe, check that the embedded engine can honour it, and warn of unlikely settings."""

import dataclasses
import math

import torch

from ..base.errors import TokenPOError, UnknownName
from ..core import parts
from ..core.negotiation import negotiate, schedule_notes
from ..core.objective import Objective
from ..core.trial import example
from ..core.types import OPTIONAL, Rollouts
from ..methods import builder, method, options_of
from ..methods.corrections import Preset, applied, corrected
from ..methods.teaching import with_teacher
from .command_line import Entry, toml_value
from .config import Config, Correction, Method, Teacher, Tinker
from .engines import EMBEDDED

_ESTIMATORS: dict[str, parts.Estimator] = {"k1": parts.K1(), "k2": parts.K2(), "k3": parts.K3()}
_LEVELS = {"token": parts.EachToken(), "total": parts.Total(), "mean": parts.Mean(), "every": parts.Every()}
TAUGHT = frozenset({"teacher_logprob", "teacher_divergence"})  # inputs that come from a teacher


def build_objective(config: Config) -> Objective:
    """The method of the recipe with the recipe's shaping, rollout correction and reference penalty.

    Raises:
        UnknownName: no such method or option.
        TokenPOError: an option of the wrong kind; two penalties on leaving the reference; two rollout corrections.
    """
    objective, rollout = build_method(config.method), config.rollout
    shaping = list(objective.shaping)
    if soft := rollout.soft_overlong:
        shaping.append(parts.SoftOverlong(soft.length or rollout.max_new_tokens, soft.cache))
    if group := rollout.group_overlong:
        shaping.append(parts.GroupOverlong(group.easy, group.scale, group.threshold))
    if config.teacher is not None:
        objective = _taught(objective, config.teacher)
    if (drafts := rollout.drafts) is not None:
        if objective.drafts is not None:
            raise TokenPOError(
                f"rollout.drafts comes on top of the drafts of {objective.name}: drop the section, as they are options "
                "of the method"
            )
        made = parts.Drafts(drafts.count, drafts.template or parts.Drafts.template)
        objective = dataclasses.replace(objective, drafts=made)
    penalties = objective.penalties + _penalty(config, objective)
    objective = dataclasses.replace(objective, shaping=tuple(shaping), penalties=penalties)
    return objective if rollout.correction is None else _corrected(objective, rollout.correction)


def accepted_here(config: Config) -> Objective:
    """The recipe's objective; raises as `build_objective`, and as `require_here` if the engine cannot honour it."""
    objective = build_objective(config)
    require_here(objective, config)
    return objective


def require_here(objective: Objective, config: Config | None = None) -> None:
    """Raises Unsupported, naming method and input, if an objective reads an input that the embedded engine lacks."""
    given: dict[str, object] = {"gain": objective.continuations or objective.coalitions, "value": objective.critic}
    if config is not None:
        given |= dict.fromkeys(TAUGHT, config.teacher)
    lacks = {"role"} | {name for name, part in given.items() if part is None}
    remedies = {
        "gain": "say where continuations are drawn, by a part that holds tokenpo.core.parts.Continuations, or what "
        "parts of a response are scored, by tokenpo.core.parts.Coalitions",
        **dict.fromkeys(TAUGHT, 'say who the teacher is in the recipe\'s section "teacher", by path or hint'),
        "value": "say what the value is fitted to, by Objective(critic=tokenpo.core.parts.Critic())",
    }
    negotiate(objective, OPTIONAL - lacks, remedies=remedies, drafts=True)


def build_method(chosen: Method) -> Objective:
    """The method alone, with its options as a recipe writes them; raises as `build_objective`."""
    name, known = chosen.name, options_of(builder(chosen.name))
    # TOML has no null: "none" stands for it where the builder accepts None.
    options = {
        key: None if value == "none" and key in known and "None" in known[key].kinds else value
        for key, value in chosen.options.items()
    }
    try:
        return method(name, **options)
    except TypeError as error:
        if isinstance(error, TokenPOError):
            raise
        raise TokenPOError(f"method {name}: an option has a value of the wrong kind: {error}") from error


def build_entry(entry: Entry) -> Objective:
    """The method of an entry of --methods; raises as `build_method`."""
    options = {key: toml_value(value) for key, value in entry.options}
    if "name" in options:
        raise UnknownName(f"method {entry.method} has no option 'name': a method is named before its options")
    return build_method(Method(name=entry.method, **options))


def _corrected(objective: Objective, section: Correction) -> Objective:
    label = "rollout.correction"
    if section.preset is not None:
        return corrected(objective, section.preset, leaves=section.leaves, label=label)
    weights: tuple[parts.Weight, ...] = ()
    if section.level is not None:
        sequence, geometric = section.level != "token", section.level == "geometric"
        cap = _limit(section.cap)
        weight = parts.RolloutCorrection(sequence, section.mode == "mask", cap, section.floor, geometric)
        weights = (parts.NormalisedWeight(weight, parts.RolloutMean(weight)) if section.normalise else weight,)
    rejected = [(_LEVELS[x.over], x.low, _limit(x.high), _ESTIMATORS.get(x.of)) for x in section.reject]
    if rejected:
        weights += (parts.Rejection(tuple(parts.Criterion(*x) for x in rejected), leaves=section.leaves),)
    return applied(objective, Preset(weights), label)


def _taught(objective: Objective, section: Teacher) -> Objective:
    if section.coef is None:
        return objective
    if objective.needs & TAUGHT:
        raise TokenPOError(
            f"teacher.coef adds a teacher, and {objective.name} reads one already: drop it, as the method has a "
            "coefficient of its own"
        )
    return with_teacher(objective, section.coef, form=section.form)


def _limit(bound: float | None) -> float:
    return math.inf if bound is None else bound


def _penalty(config: Config, objective: Objective) -> tuple[parts.Penalty, ...]:
    section = config.train.reference_kl
    if section is None:
        return ()
    own = [part for part in parts.walk(objective.penalties) if isinstance(part, parts.ReferenceKl)]
    if own:
        raise TokenPOError(
            f"train.reference_kl comes on top of {own[0]}, which {objective.name} has already: drop the section, "
            "or switch the method's own off with its option for the coefficient"
        )
    estimator = _ESTIMATORS[section.estimator]
    if not section.unbiased:
        used = parts.StraightThrough(estimator) if section.straight_through else estimator
        return (parts.ReferenceKl(section.beta, used),)
    if section.straight_through or section.estimator == "k2":
        raise TokenPOError(
            "train.reference_kl.unbiased weighs k1 or k3 by the ratio, which makes the gradient the divergence's: set "
            "estimator to one of them, and leave straight_through out"
        )
    return (parts.Reweighted(parts.ReferenceKl(section.beta, estimator)),)


def warnings(objective: Objective, config: Config, engine: str = EMBEDDED) -> list[str]:
    """Warnings on settings that are allowed but probably not intended, in a run of this engine."""
    train, rollout = config.train, config.rollout
    notes = schedule_notes(
        objective,
        train.epochs * train.minibatches,
        "set train.minibatches or train.epochs above 1",
        "set train.minibatches and train.epochs to 1",
    )
    if rollout.correction is not None and not rollout.rescore and objective.temperature is None:
        notes.append(
            "rollout.correction cannot act: the old log-probs are the sampler's own; set rollout.rescore = true"
        )
    if config.critic is not None and config.critic.warmup:
        notes.append(f"critic.warmup: the first {config.critic.warmup} rollout batches train the critic alone")
    if objective.drafts is not None:
        notes.append(
            f"{objective.name} trains on prompts that show the best of {objective.drafts.count} drafts; evaluation "
            "asks once, without drafts"
        )
    if rollout.dynamic_sampling and objective.needs & TAUGHT:
        notes.append("rollout.dynamic_sampling drops groups of equal rewards, from which a teacher would still teach")
    for section, reads in (("critic", objective.critic), ("teacher", objective.needs & TAUGHT)):
        read_here = engine == EMBEDDED or section == "teacher"
        if read_here and getattr(config, section) is not None and not reads:
            remedy = " and there is no teacher.coef" if section == "teacher" else ""
            notes.append(f"the section [{section}] is not read: {objective.name} has no {section}{remedy}")
    if engine == EMBEDDED and config.tinker != Tinker():
        notes.append("the section [tinker] is not read: it is for --engine tinker")
    if engine != EMBEDDED and config.critic is not None:
        notes.append("the section [critic] is not read: it is for the embedded engine")
    if rollout.group_size == 1 and not _teaches_alone(objective):
        notes.append("rollout.group_size is 1: a group of one has no advantage over itself")
    if train.minibatches > rollout.prompts and train.minibatch_by == "groups":
        notes.append(f"train.minibatches is {train.minibatches}, but there are only {rollout.prompts} groups to split")
    if config.model.path != "tiny" and "lr" not in train.model_fields_set:
        notes.append(
            f"train.lr is not set, and {train.lr:g} suits the package's tiny model: larger ones are trained with about "
            "1e-6, or 1e-5 with LoRA"
        )
    return notes


def _teaches_alone(objective: Objective) -> bool:
    """Whether a response gets an advantage without others of its group."""
    rollouts = example().rollouts
    alone = Rollouts(**{**rollouts, "group": torch.arange(len(rollouts["mask"]))})
    return bool(objective.prepare(alone).advantage.any())
