"""The model, the reference and the task of a run, loaded for the objective that its recipe asks for."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.objective import Objective
from ...core.types import Rollouts
from ...models import LanguageModel
from ...recipe.config import Config
from ...recipe.objective import require_here
from ...recipe.plan import Plan
from ...runs.rollouts.draw import Draw
from ...runs.rollouts.experience import credited
from ...runs.trackers import require_trackers
from ...tasks import Task
from .facts import MAKERS, require_plain_head
from .forward import Forward


@dataclass(frozen=True)
class Engine:
    """The parts of a run that stay while it trains; only the model's weights change."""

    plan: Plan
    lm: LanguageModel
    task: Task
    reference: LanguageModel | None

    @property
    def config(self) -> Config:
        return self.plan.config

    @property
    def objective(self) -> Objective:
        return self.plan.objective

    def about(self) -> str:
        """Size, precision and device of the model."""
        sizes = [(x.numel(), x.requires_grad) for x in self.lm.model.parameters()]
        size, trained = sum(n for n, _ in sizes), sum(n for n, grad in sizes if grad)
        part = "" if trained == size else f", {trained / 1e6:.2f} M of them trained"
        return f": {size / 1e6:.2f} M parameters{part}, {self.config.model.dtype} on {self.lm.device}"


def build_engine(plan: Plan, needs: frozenset[str] = frozenset()) -> Engine:
    """Loads everything a run needs, cheapest first, so that a mistake shows before a model is loaded.

    Args:
        needs: inputs that other objectives read, beside the run's own.

    Raises:
        TokenPOError: what is wrong, with its remedy.
    """
    require_trackers(plan.config.output.track)
    require_here(plan.objective)
    if plan.config.threads is not None:
        torch.set_num_threads(plan.config.threads)
    task = plan.make_task()
    try:
        lm, needs = plan.load_model(), needs | plan.objective.needs
        if "influence" in needs:
            require_plain_head(lm, f"{plan.objective.name} needs influence, and in the embedded engine ")
        # Under LoRA the reference is the same model with its adapters switched off.
        apart = "ref_logprob" in needs and lm.adapter is None
        return Engine(plan, lm, task, plan.load_model() if apart else None)
    except BaseException:
        task.close()
        raise


@torch.no_grad()
def with_optional_inputs(
    engine: Engine, forward: Forward, rollouts: Rollouts, kept: Draw, needs: frozenset[str] | None = None
) -> Rollouts:
    """The rollouts with the turns and rewards that the task reports, and with the inputs that take a forward pass.

    Args:
        needs: of objectives; None is those of the engine's own.
    """
    needs = engine.objective.needs if needs is None else needs
    fields: dict[str, Tensor | None] = {**credited(kept, rollouts, needs)}
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
