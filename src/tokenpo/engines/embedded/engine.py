"""The model, the reference and the task of a run, loaded for the objective that its recipe asks for."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.negotiation import negotiate
from ...core.objective import Objective
from ...core.types import OPTIONAL, Policy, Rollouts
from ...models import LanguageModel
from ...recipe.config import Config
from ...recipe.model import load_model
from ...recipe.objective import build_objective
from ...runs.rollouts.draw import Draw
from ...runs.rollouts.experience import credited
from ...runs.trackers import require_trackers
from ...tasks import Task, make_task
from .facts import MAKERS, require_plain_head
from .forward import Forward

REMEDIES = {"gain": "say where continuations are drawn, by a part that holds tokenpo.core.parts.Continuations"}


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

    def about(self) -> str:
        """Size, precision and device of the model."""
        sizes = [(x.numel(), x.requires_grad) for x in self.lm.model.parameters()]
        size, trained = sum(n for n, _ in sizes), sum(n for n, grad in sizes if grad)
        part = "" if trained == size else f", {trained / 1e6:.2f} M of them trained"
        return f": {size / 1e6:.2f} M parameters{part}, {self.config.model.dtype} on {self.device}"


def build_engine(config: Config, needs: frozenset[str] = frozenset()) -> Engine:
    """Loads everything a run needs, cheapest first, so that a mistake shows before a model is loaded.

    Args:
        needs: of other objectives beside the run's own.

    Raises:
        TokenPOError: what is wrong, with its remedy.
    """
    require_trackers(config.output.track)
    objective = build_objective(config)
    provided(objective)
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    task = make_task(config.task.name, config.task.options, config.problem_seed)
    try:
        lm, needs = load_model(config), needs | objective.needs
        if "influence" in needs:
            require_plain_head(lm, f"{objective.name} needs influence, and in the embedded engine ")
        # Under LoRA the reference is the same model with its adapters switched off.
        apart = "ref_logprob" in needs and lm.adapter is None
        return Engine(config, objective, lm, task, load_model(config) if apart else None)
    except BaseException:
        task.close()
        raise


def provided(objective: Objective) -> None:
    """Refuses an objective that reads what this engine does not have.

    Raises:
        Unsupported: naming method and input.
    """
    has = OPTIONAL if objective.continuations else OPTIONAL - {"gain"}
    negotiate(objective, has, remedies=REMEDIES)


def with_optional_inputs(
    engine: Engine, forward: Forward, rollouts: Rollouts, kept: Draw, needs: frozenset[str] | None = None
) -> Rollouts:
    """The rollouts with what the task tells of turns and rewards, and what takes another forward pass: the reference's
    log-prob, on request the old policy's, and what the objective compares inside a group beyond the rewards.

    Args:
        needs: of objectives; None is those of the engine's own.
    """
    needs = engine.objective.needs if needs is None else needs
    fields: dict[str, Tensor | None] = {**credited(kept, rollouts, needs)}
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
        for name in sorted(needs & MAKERS.keys()):
            if getattr(rollouts, name) is None:
                fields[name] = forward.fact(name, rollouts, kept.prompts)
    return dataclasses.replace(rollouts, **fields) if fields else rollouts


@torch.no_grad()
def judged(forward: Forward, rollouts: Rollouts, kept: Draw) -> Policy:
    """What the model says now of a whole rollout batch."""
    return forward.policy(rollouts, kept.prompts)
