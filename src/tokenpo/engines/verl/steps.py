"""Optimiser steps one by one, from the driver: for objectives that look at the current policy over a whole step first,
or make several passes over a rollout batch.

verl's own update takes all steps of a rollout batch in one call to the workers. Here each step is a call of its own,
with its rows; the log-probs under the policy of the moment come from one more forward pass, except for the first step,
where the policy is the old one.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tensordict import TensorDict
from verl.workers.utils.padding import response_from_nested

from ...core.objective import Objective
from ...core.seeds import keyed_generator
from . import queue

if TYPE_CHECKING:
    from .trainer import TokenPOTrainer


def one_by_one(trainer: TokenPOTrainer, batch: Any, metrics: dict, plan: list[list[int]]) -> None:
    """passes x epochs x minibatches, each a call to the workers."""
    actor = trainer.config.actor_rollout_ref.actor
    passes = trainer.objective.split()
    metrics_of_steps: list[dict[str, Any]] = []
    for part in passes:
        if len(passes) > 1:
            trainer.set_objective(part)
        for rows in plan * actor.ppo_epochs:
            minibatch = queue.some(batch, rows)
            if part.scope == "batch":
                _observe(trainer, part, minibatch, rows, first=not metrics_of_steps)
            step_metrics: dict[str, Any] = {}
            with _single_step(trainer, len(rows)):
                trainer.update_rows(minibatch, step_metrics)
            metrics_of_steps.append(step_metrics)
            trainer.tokenpo_updates += 1
    metrics.update(queue.over_steps(metrics_of_steps))


@contextmanager
def _single_step(trainer: TokenPOTrainer, rows: int) -> Iterator[None]:
    """verl's update takes the rows that it is given as one optimiser step."""
    actor, n = trainer.config.actor_rollout_ref.actor, trainer.config.actor_rollout_ref.rollout.n
    before = actor.ppo_epochs, actor.ppo_mini_batch_size
    actor.ppo_epochs, actor.ppo_mini_batch_size = 1, rows // n
    try:
        yield
    finally:
        actor.ppo_epochs, actor.ppo_mini_batch_size = before


def _observe(trainer: TokenPOTrainer, part: Objective, minibatch: Any, rows: list[int], *, first: bool) -> None:
    step = trainer.tokenpo_step
    assert step is not None  # phase one ran before
    if first:
        data = queue.get(minibatch, ["old_log_probs", "entropy"])
        now = TensorDict({"log_probs": data["old_log_probs"], "entropy": data["entropy"]}, [len(rows)])
    else:
        now = _forward(trainer, minibatch)
    seed = trainer.config.actor_rollout_ref.actor.data_loader_seed
    draws = keyed_generator(seed, "observe", trainer.tokenpo_updates)
    queue.put(minibatch, step.observed(part, rows, now, draws))


def _forward(trainer: TokenPOTrainer, minibatch: Any) -> TensorDict:
    """log_probs and entropy of these rows under the policy of the moment; the old entropies are put back after."""
    old = queue.get(minibatch, ["entropy"])
    settings = {
        "calculate_entropy": True,
        "compute_loss": False,
        "temperature": trainer.config.actor_rollout_ref.rollout.temperature,
    }
    actor = trainer.config.actor_rollout_ref.actor
    if not actor.use_dynamic_bsz:
        # What divides an optimiser step need not be what divides a rollout batch.
        settings["micro_batch_size_per_gpu"] = actor.ppo_micro_batch_size_per_gpu
    view = queue.some(minibatch, range(len(minibatch)))
    view.extra_info.update(settings)
    trainer.actor_rollout_wg.compute_log_prob(view)
    data = queue.get(minibatch, ["log_probs", "entropy", "response_mask"])
    queue.put(minibatch, TensorDict({"entropy": old["entropy"]}, [len(minibatch)]))
    mask = data["response_mask"]
    return TensorDict(
        {name: response_from_nested(data[name], mask) for name in ("log_probs", "entropy")}, [len(minibatch)]
    )
