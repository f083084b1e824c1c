"""What the embedded engine is asked for, what it can honour, and the model, reference and task that follow from it."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from dataclasses import dataclass

import torch
from torch import Tensor

from .. import lm as language
from ..errors import TokenPOError, Unsupported
from ..lm import LanguageModel, LoraOptions
from ..lm.tiny import ASSETS
from ..methods import METHODS, method
from ..objective import Objective
from ..stages import GroupOverlong, SoftOverlong
from ..tasks import Task, make_task
from ..types import Rollouts
from .config import Config
from .forward import Forward
from .rollout import Draw
from .seeds import keyed_seed

PROVIDES = frozenset({
    "old_entropy", "rollout_logprob", "ref_logprob", "temperature", "token_ids", "entropy", "entropy_drift",
    "prompt_logprob", "influence", "divergence",
})  # fmt: skip


@dataclass(frozen=True)
class Engine:
    """The parts of a run that do not change while it trains (the model's weights do)."""

    config: Config
    objective: Objective
    lm: LanguageModel
    task: Task
    reference: LanguageModel | None

    @property
    def device(self) -> str:
        return str(self.lm.device)


def build_engine(config: Config) -> Engine:
    """Loads everything a run needs, cheapest first, so that a mistake shows before a model is loaded.

    Raises:
        TokenPOError: what is wrong, with its remedy.
    """
    objective = build_objective(config)
    negotiate(objective)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    seed = config.seed if config.task.seed is None else config.task.seed
    task = make_task(config.task.name, config.task.options, seed)
    try:
        lm = load_model(config)
        if "influence" in objective.needs:
            language.require_plain_head(lm)
        # Under LoRA the reference is the same model with its adapters switched off.
        apart = "ref_logprob" in objective.needs and lm.adapter is None
        return Engine(config, objective, lm, task, load_model(config) if apart else None)
    except BaseException:
        task.close()
        raise


def build_objective(config: Config) -> Objective:
    """The method of the recipe, with the reward shaping of its rollout section.

    Raises:
        UnknownName: no such method or option.
    """
    options = config.method.options
    if config.method.name in METHODS:
        known = inspect.signature(METHODS[config.method.name]).parameters
        # TOML has no null: "none" stands for it wherever the builder takes one.
        options = {
            key: None if value == "none" and key in known and "None" in str(known[key].annotation) else value
            for key, value in options.items()
        }
    try:
        objective = method(config.method.name, **options)
    except TypeError as error:
        if isinstance(error, TokenPOError):
            raise
        raise TokenPOError(f"method {config.method.name}: an option has a value of the wrong kind: {error}") from error
    soft, group = config.rollout.soft_overlong, config.rollout.group_overlong
    shaping = objective.shaping
    if soft is not None:
        shaping += (SoftOverlong(soft.length or config.rollout.max_new_tokens, soft.cache),)
    if group is not None:
        shaping += (GroupOverlong(group.easy, group.scale, group.threshold),)
    return dataclasses.replace(objective, shaping=shaping) if shaping != objective.shaping else objective


def negotiate(objective: Objective) -> None:
    """Refuses a method that reads what this engine does not have; nothing is ever replaced by something else.

    Raises:
        Unsupported: naming method, input, engine and remedy.
    """
    for name in sorted(objective.needs - PROVIDES):
        raise Unsupported(
            f"{objective.name} needs {name}, which the embedded engine does not provide (it has "
            f"{', '.join(sorted(PROVIDES))}): choose another method, or compute {name} yourself and call the "
            "objective from your own loop"
        )


def warnings(objective: Objective, config: Config) -> list[str]:
    """What is allowed but unlikely to be meant."""
    train, rollout = config.train, config.rollout
    notes: list[str] = []
    idle = objective.idle_on_policy
    if idle and train.epochs * train.minibatches == 1:
        parts = ", ".join(type(part).__name__ for part in idle)
        notes.append(
            f"{objective.name}: {parts} can not act, because with one update per rollout batch the policy is still the "
            "one that sampled; set train.minibatches or train.epochs above 1"
        )
    blind = objective.assumes_on_policy
    if blind and train.epochs * train.minibatches > 1:
        parts = ", ".join(type(part).__name__ for part in blind)
        notes.append(
            f"{objective.name}: {parts} takes the policy for the one that sampled, and after the first update on a "
            "rollout batch it is not; set train.minibatches and train.epochs to 1 for the method as published"
        )
    if rollout.group_size == 1:
        notes.append("rollout.group_size is 1: a group of one has no advantage over itself")
    if train.minibatches > rollout.prompts and train.minibatch_by == "groups":
        notes.append(f"train.minibatches is {train.minibatches}, but there are only {rollout.prompts} groups to split")
    return notes


def load_model(config: Config) -> LanguageModel:
    options = config.model
    lora = options.lora
    adapters = None
    if lora is not None:
        targets = lora.targets if isinstance(lora.targets, str) else tuple(lora.targets)
        adapters = LoraOptions(lora.rank, lora.alpha, targets)
    with torch.random.fork_rng():
        # LoRA's first factors come from the global generator.
        torch.manual_seed(keyed_seed(config.seed, "model"))
        where = ASSETS if options.path == "tiny" else options.path
        return language.load(where, dtype=options.dtype, device=resolve_device(options.device), lora=adapters)


def resolve_device(name: str) -> str:
    return name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def with_optional_inputs(engine: Engine, forward: Forward, rollouts: Rollouts, kept: Draw) -> Rollouts:
    """The rollouts with what takes another forward pass: the reference's log-prob, on request the old policy's, and
    what the objective compares inside a group beyond the rewards."""
    fields: dict[str, Tensor | None] = {}
    needs = engine.objective.needs
    with torch.no_grad():
        if engine.config.rollout.rescore:
            policy = forward.policy(rollouts, kept.prompts)
            fields |= {"old_logprob": policy.logprob.float(), "old_entropy": policy.entropy}
        if "ref_logprob" in needs:
            lm = engine.reference or engine.lm
            base = engine.lm.adapter.disable_adapter() if engine.reference is None else contextlib.nullcontext()
            with base:
                policy = dataclasses.replace(forward, lm=lm, drift=False).policy(rollouts, kept.prompts)
            fields["ref_logprob"] = policy.logprob.float()
        if "influence" in needs:
            fields["influence"] = forward.influence(rollouts, kept.prompts).float()
        if "divergence" in needs:
            fields["divergence"] = forward.divergence(rollouts, kept.prompts).float()
        if "prompt_logprob" in needs:
            heat = engine.config.rollout.temperature
            fields["prompt_logprob"] = forward.prompt_logprob(rollouts, kept.prompts, heat).float()
    return dataclasses.replace(rollouts, **fields) if fields else rollouts
