"""The learner's updates on one rollout batch of TRL's, micro-batch by micro-batch.

A rollout batch is split into `steps_per_generation` chunks. The micro-batches are these chunks in order, repeated
`num_iterations` times. An optimiser step takes `gradient_accumulation_steps` micro-batches. TRL shuffles rows before it
splits them over ranks; every rank holds the whole rollout batch, so only the row numbers of micro-batches are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...base.errors import present
from ...core.learner import Step
from ...core.objective import Objective
from ...core.types import Batch, Loss, Policy
from ...core.update import Update
from ...records import Tracer
from . import moved
from .forward import ROW, padded
from .rollout_batch import RolloutBatch


@dataclass(frozen=True)
class Cycle:
    """The micro-batches of one rollout batch, the same on every rank."""

    accumulate: int  # micro-batches per optimiser step
    chunks: int  # per rollout batch
    iterations: int  # how often each chunk is taken
    passes: int = 1  # optimiser passes of the objective

    @staticmethod
    def of(args: Any, objective: Objective) -> "Cycle":
        passes = len(objective.split())
        return Cycle(args.gradient_accumulation_steps, args.steps_per_generation, args.num_iterations, passes)

    @property
    def micro_steps(self) -> int:
        """Micro-batches between one generation and the next."""
        return self.chunks * self.iterations

    @property
    def updates(self) -> int:
        """Optimiser steps between one generation and the next."""
        return self.micro_steps // self.accumulate

    def place(self, micro_step: int) -> tuple[int, int]:
        """(optimiser step of the rollout batch, micro-batch of that step) of a micro-step of the run."""
        return divmod(micro_step % self.micro_steps, self.accumulate)

    def chunks_of(self, update: int) -> list[int]:
        """The chunk of each micro-batch of an optimiser step; a chunk appears twice in a step of two iterations."""
        return [(update * self.accumulate + i) % self.chunks for i in range(self.accumulate)]

    def pass_of(self, update: int) -> int:
        """The objective's pass that an optimiser step belongs to."""
        return update * self.passes // self.updates

    def faults(self) -> Iterator[str]:
        """Yields a sentence if an optimiser step would see two rollout batches, or two passes."""
        step = f"an optimiser step of TRL's, gradient_accumulation_steps = {self.accumulate} micro-batches, would see"
        if self.iterations % self.passes:
            yield (
                f"the objective takes {self.passes} optimiser passes over a rollout batch, which TRL's num_iterations "
                f"= {self.iterations} cannot hold: set num_iterations={self.passes}"
            )
        elif self.micro_steps % self.accumulate:
            yield (
                f"{step} more than one rollout batch, steps_per_generation x num_iterations = {self.chunks} x "
                f"{self.iterations}, and its denominators are not known before all of them are drawn: set "
                f"steps_per_generation={-(-self.chunks // self.accumulate) * self.accumulate}"
            )
        elif self.micro_steps // self.passes % self.accumulate:
            yield (
                f"{step} two passes of steps_per_generation = {self.chunks}: set steps_per_generation={self.accumulate}"
            )


class InFlightBatch:
    """The rollout batch in training, until the next is drawn; `step` is None if no response has a token that counts."""

    def __init__(self, trainer: Any, batch: RolloutBatch, step: Step | None, tracer: Tracer) -> None:
        self.batch, self.step, self.tracer = batch, step, tracer
        self.update: Update | None = None  # the last that was begun
        self._trainer, self._cycle = trainer, trainer.cycle
        self._rows: Tensor | None = None
        self._traced: tuple[Tensor, Batch, Loss] | None = None

    def update_of(self, model: Any, inputs: Mapping[str, Any]) -> Update | None:
        """The update of a micro-batch; None if there is nothing to learn from. All ranks must call it."""
        cycle, trainer = self._cycle, self._trainer
        number, micro = cycle.place(trainer._step)
        chunks, buffer = cycle.chunks_of(number), trainer._buffered_inputs
        if buffer[chunks[micro]] is not inputs or trainer.current_gradient_accumulation_steps != cycle.accumulate:
            raise moved(
                f"GRPOTrainer is at micro-batch {micro} of {trainer.current_gradient_accumulation_steps} with another "
                "part of its rollout batch than expected"
            )
        if micro or self.step is None:
            return self.update
        if self._rows is None:
            # [ranks, chunks, M] row numbers, gathered once: TRL does not shuffle again.
            self._rows = trainer.accelerator.gather(torch.stack([part[ROW] for part in buffer])[None])
            last_first = [cycle.chunks_of(update) for update in reversed(range(cycle.updates))]
            mine = torch.cat([buffer[chunk][ROW].sort().values for plan in last_first for chunk in plan])
            self.tracer.choose(mine, self.step)
        rows = present(self._rows, "the places of the rows")[:, chunks].flatten()
        self.update = update = self.step.update(rows, cycle.pass_of(number), self.step.first + number)
        if update.observes:
            update.observe(self._policy(update, model, chunks))
        return update

    def _policy(self, update: Update, model: Any, chunks: Sequence[int]) -> Policy:
        """The current policy on all rows of an update made of `chunks`."""
        distinct, rows = list(dict.fromkeys(chunks)), present(self._rows, "the places of the rows")
        parts = [self._trainer._buffered_inputs[chunk] for chunk in distinct]
        return policy_of(self._trainer, update, model, parts, rows[:, distinct].flatten())

    def watch(self, rows: Tensor, batch: Batch, loss: Loss) -> None:
        """Called before a micro-batch's backward pass; prepares its traced rows."""
        self.tracer.watch(rows, batch)
        self._traced = rows, batch, loss

    def settle(self) -> None:
        """Called after that backward pass; records the traced rows. The loss was multiplied by the number of ranks."""
        if self._traced is None:
            return
        (rows, batch, loss), self._traced = self._traced, None
        if batch.policy.logprob.retains_grad and batch.policy.logprob.grad is not None:
            batch.policy.logprob.grad /= self._trainer.accelerator.num_processes
        self.tracer.add(rows, batch, loss)

    def check(self, lr: float) -> bool:
        """Called before an optimiser step: whether to take it, in which all ranks agree."""
        if self.update is None:
            return True
        accelerator, statistics = self._trainer.accelerator, self.update.statistics
        self.update.statistics = statistics.across(
            lambda x: accelerator.gather(x[None]).sum(0),
            lambda x: accelerator.gather(x[None]).amax(0),
            accelerator.device,
        )
        return self._trainer.learner.check(self.update, lr=lr)

    def end(self) -> None:
        """Called on all ranks after the last optimiser step; measures the batch's KL if the learner controls one."""
        trainer, cycle, update = self._trainer, self._cycle, self.update
        if update is not None and trainer.learner.measures_end:
            policy = self._policy(update, trainer.model, cycle.chunks_of(cycle.updates - 1))
            trainer.learner.end(update, policy)


def policy_of(trainer: Any, update: Update, model: Any, parts: Sequence[Mapping[str, Any]], rows: Tensor) -> Policy:
    """The current policy on all rows of the update, in its order; all ranks must call it.

    `parts` hold each of this rank's rows once; `rows` are the row numbers of all ranks' parts, in rank order.
    """
    order = rows.argsort()
    order = order[torch.searchsorted(rows[order], update.rows)]
    return policy_now(trainer, model, parts, update.rollouts.mask.shape[1]).rows(order)


@torch.no_grad()
def policy_now(
    trainer: Any, model: Any, parts: Sequence[Mapping[str, Any]], width: int, rows: int | None = None
) -> Policy:
    """The current policy on the parts of all ranks, in rank order, `width` tokens wide; all ranks must call it."""
    policies = [padded(trainer.forward_passes.policy(model, part, rows), width) for part in parts]
    names = [name for name, x in vars(policies[0]).items() if x is not None]
    local = {name: torch.cat([policy.need(name).float() for policy in policies]) for name in names}
    return Policy(**{name: trainer.accelerator.gather(x.contiguous()) for name, x in local.items()})
