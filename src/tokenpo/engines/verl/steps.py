"""Optimiser steps one by one, from the driver: for objectives that look at the current policy over a whole step first,
or make several passes over a rollout batch.

verl's own update takes all steps of a rollout batch in one call to the workers. Here each step is a call of its own,
with its rows; the log-probs under the policy of the moment come from one more forward pass, except for the first step,
where the policy is the old one.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import transfer_queue as tq
from tensordict import TensorDict
from verl.utils.metric import reduce_metrics
from verl.workers.utils.padding import response_from_nested

from ...core.learner import Step
from .layout import Rows


def get(batch: Any, fields: Sequence[str]) -> TensorDict:
    """These fields of every row of verl's batch, as far as they are filled."""
    return tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(fields))


def put(batch: Any, fields: TensorDict) -> Any:
    """Fields of every row; verl's batch as it is afterwards."""
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)


def some(batch: Any, rows: Sequence[int]) -> Any:
    """Some rows of verl's batch, in this order."""
    return type(batch)(
        keys=[batch.keys[row] for row in rows],
        tags=[batch.tags[row] for row in rows],
        partition_id=batch.partition_id,
        extra_info=dict(batch.extra_info),
    )


def one_by_one(trainer: Any, step: Step, where: Rows, batch: Any, metrics: dict, plan: list[list[int]]) -> None:
    """passes x epochs x minibatches, each a call to the workers."""
    epochs = trainer.config.actor_rollout_ref.actor.ppo_epochs
    passes = len(step.objective.split())
    of_steps: dict[str, list[float]] = {}
    for number, (part, rows) in enumerate((part, rows) for part in range(passes) for rows in plan * epochs):
        if passes > 1 and number % (len(plan) * epochs) == 0:
            trainer.send_loss(part)
        minibatch = some(batch, rows)
        update = step.update(where.numbers(rows), part, step.first + number)
        if update.observes:
            here, known = where.some(rows), update.credit.signals
            now = _forward(trainer, minibatch) if number else _as_sampled(minibatch)
            update.observe(here.policy(now, update.rollouts.mask.shape[1]))
            put(minibatch, here.signals(step.objective, update.credit, known))
        of_step: dict[str, Any] = {}
        with _single_step(trainer, len(rows)):
            trainer.update_rows(minibatch, of_step)
        for name, value in of_step.items():
            of_steps.setdefault(name, []).append(float(value))
    metrics.update(reduce_metrics(of_steps))


@contextmanager
def _single_step(trainer: Any, rows: int) -> Iterator[None]:
    """verl's update takes the rows that it is given as one optimiser step."""
    actor, n = trainer.config.actor_rollout_ref.actor, trainer.config.actor_rollout_ref.rollout.n
    before = actor.ppo_epochs, actor.ppo_mini_batch_size
    actor.ppo_epochs, actor.ppo_mini_batch_size = 1, rows // n
    try:
        yield
    finally:
        actor.ppo_epochs, actor.ppo_mini_batch_size = before


def _as_sampled(minibatch: Any) -> TensorDict:
    """log_probs and entropy before the first update: the old ones."""
    data = get(minibatch, ["old_log_probs", "entropy"])
    return TensorDict({"log_probs": data["old_log_probs"], "entropy": data["entropy"]}, [len(minibatch)])


def _forward(trainer: Any, minibatch: Any) -> TensorDict:
    """log_probs and entropy of these rows under the policy of the moment; the old entropies are put back after."""
    old = get(minibatch, ["entropy"])
    settings = {
        "calculate_entropy": True,
        "compute_loss": False,
        "temperature": trainer.config.actor_rollout_ref.rollout.temperature,
    }
    actor = trainer.config.actor_rollout_ref.actor
    if not actor.use_dynamic_bsz:
        # What divides an optimiser step need not be what divides a rollout batch.
        settings["micro_batch_size_per_gpu"] = actor.ppo_micro_batch_size_per_gpu
    view = some(minibatch, range(len(minibatch)))
    view.extra_info.update(settings)
    trainer.actor_rollout_wg.compute_log_prob(view)
    data = get(minibatch, ["log_probs", "entropy", "response_mask"])
    put(minibatch, TensorDict({"entropy": old["entropy"]}, [len(minibatch)]))
    mask = data["response_mask"]
    return TensorDict(
        {name: response_from_nested(data[name], mask) for name in ("log_probs", "entropy")}, [len(minibatch)]
    )
