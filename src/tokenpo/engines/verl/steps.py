"""Optimiser steps called one by one from the driver, for objectives that observe the policy over a whole step first or
make several passes over a rollout batch.

verl's own update makes all steps of a rollout batch in one call to the workers. The current log-probs come from one
more forward pass, except in the first step, where the policy is the old one.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import itertools
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
    """Fields of every row of verl's batch; without those that are not filled."""
    return tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(fields))


def put(batch: Any, fields: TensorDict) -> Any:
    """Writes fields of every row; returns verl's batch as it is afterwards."""
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
    """passes x epochs x minibatches updates, each a call to the workers."""
    dealt: list[list[int]] = plan * trainer.config.actor_rollout_ref.actor.ppo_epochs
    passes = len(step.objective.split())
    of_steps: dict[str, list[float]] = {}
    for number, (part, rows) in enumerate(itertools.product(range(passes), dealt)):
        if passes > 1 and number % len(dealt) == 0:
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
    """verl's update makes one optimiser step of all rows that it is given."""
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
    """log_probs and entropy under the current policy; the field of the old entropies is restored afterwards."""
    old, rows = get(minibatch, ["entropy"]), len(minibatch)
    actor, rollout = trainer.config.actor_rollout_ref.actor, trainer.config.actor_rollout_ref.rollout
    view = some(minibatch, range(rows))
    view.extra_info |= {"calculate_entropy": True, "compute_loss": False, "temperature": rollout.temperature}
    if not actor.use_dynamic_bsz:  # a divisor of a rollout batch need not divide an optimiser step
        view.extra_info["micro_batch_size_per_gpu"] = actor.ppo_micro_batch_size_per_gpu
    trainer.actor_rollout_wg.compute_log_prob(view)
    data = get(minibatch, ["log_probs", "entropy", "response_mask"])
    put(minibatch, TensorDict({"entropy": old["entropy"]}, [rows]))
    current = {name: response_from_nested(data[name], data["response_mask"]) for name in ("log_probs", "entropy")}
    return TensorDict(current, [rows])
