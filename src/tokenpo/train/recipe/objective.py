"""Build the objective of a recipe, check that the embedded engine can train it, and warn of unlikely settings."""

from ...base.errors import Unsupported
from ...core import parts
from ...core.head.kept import Cut
from ...core.negotiation import negotiate, schedule_notes
from ...core.objective import Objective
from ...core.types import OPTIONAL, TAUGHT
from ...methods import Teaching, build_method, extended, from_text
from .command_line import Entry, toml_value
from .config import Config

# Inputs that compare distributions over the whole vocabulary.
_WHOLE = frozenset({"teacher_divergence", "divergence"})


def build_objective(config: Config) -> Objective:
    """The method of the recipe with the recipe's shaping, teacher, reference penalty and rollout correction.

    Raises:
        UnknownName: no such method, option or preset.
        TokenPOError: an option of the wrong kind, or an addition that the method has already.
    """
    rollout, teacher = config.rollout, config.teacher
    shaping: list[parts.Shaping] = []
    if soft := rollout.soft_overlong:
        shaping.append(parts.SoftOverlong(soft.length or rollout.max_new_tokens, soft.cache))
    if group := rollout.group_overlong:
        shaping.append(parts.GroupOverlong(**dict(group)))
    reference, weighed = config.train.reference_kl, rollout.correction
    return extended(
        build_method(config.method.name, config.method.options),
        reference=None if reference is None else from_text.reference_kl(**dict(reference)),
        correction=None if weighed is None else from_text.correction(**weighed.model_dump()),
        teacher=None if teacher is None or teacher.coef is None else Teaching(teacher.coef, teacher.form),
        shaping=shaping,
        labels={"reference": "train.reference_kl", "correction": "rollout.correction", "teacher": "teacher.coef"},
    )


def accepted_here(config: Config) -> Objective:
    """The recipe's objective, if the embedded engine can train it."""
    objective = build_objective(config)
    require_here(objective, config)
    return objective


def require_here(objective: Objective, config: Config | None = None) -> None:
    """Raises Unsupported, naming method and input, if an objective reads an input that the embedded engine lacks."""
    given: dict[str, object] = {"value": objective.critic}
    if config is not None:
        given |= dict.fromkeys(TAUGHT, config.teacher)
    lacks = {name for name, part in given.items() if part is None}
    remedies = {
        **dict.fromkeys(TAUGHT, 'say who the teacher is in the recipe\'s section "teacher", by path or hint'),
        "value": "say what the value is fitted to, by Objective(critic=tokenpo.parts.Critic())",
    }
    if config is not None and config.rollout.cut != Cut():
        cut, why = "rollout.top_p, rollout.top_k and rollout.min_p", ""
        if whole := sorted(objective.needs & _WHOLE):
            why = f"needs {whole[0]}, which is over the whole vocabulary, and {cut} cut it"
        elif objective.temperature is not None:
            why = f"adapts the temperature to the entropy of the whole vocabulary, and {cut} cut it"
        if why:
            raise Unsupported(f"{objective.name} {why}: leave them out, or take another method")
    negotiate(objective, OPTIONAL - lacks | {part.gives for part in objective.supplied}, remedies=remedies)


def build_entry(entry: Entry) -> Objective:
    """The method of an entry of --methods; raises as `build_method`."""
    return build_method(entry.method, {key: toml_value(value) for key, value in entry.options})


def warnings(objective: Objective, config: Config) -> list[str]:
    """Warnings on settings that are allowed but probably not intended."""
    train, rollout = config.train, config.rollout
    notes = schedule_notes(
        objective,
        train.epochs * train.minibatches,
        "set train.minibatches or train.epochs above 1",
        "set train.minibatches and train.epochs to 1",
    )
    if (idle := objective.idle_as_sampled) and not rollout.rescore and objective.temperature is None:
        told = ", ".join(type(part).__name__ for part in idle)
        notes.append(f"{told} cannot act: old log-probs are the sampler's own; set rollout.rescore = true")
    if config.critic is not None and config.critic.warmup:
        notes.append(f"critic.warmup: the first {config.critic.warmup} rollout batches train the critic alone")
    if rollout.dynamic_sampling and objective.needs & TAUGHT:
        notes.append("rollout.dynamic_sampling drops groups of equal rewards, from which a teacher would still teach")
    for section, reads in (("critic", objective.critic), ("teacher", objective.needs & TAUGHT)):
        if getattr(config, section) is not None and not reads:
            remedy = " and there is no teacher.coef" if section == "teacher" else ""
            notes.append(f"the section [{section}] is not read: {objective.name} has no {section}{remedy}")
    if train.minibatches > rollout.prompts and train.minibatch_by == "groups":
        notes.append(f"train.minibatches is {train.minibatches}, but there are only {rollout.prompts} groups to split")
    if config.model.path != "tiny" and "lr" not in train.model_fields_set:
        larger = "larger ones are trained with about 1e-6, or 1e-5 with LoRA"
        notes.append(f"train.lr is not set, and {train.lr:g} suits the package's tiny model: {larger}")
    return notes
