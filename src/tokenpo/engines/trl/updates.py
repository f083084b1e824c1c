"""The updates on one rollout batch: which of the learner's a micro-batch of TRL's belongs to, and what it begins with.

TRL shuffles rows, splits them over ranks and hands them over one micro-batch after the other. Every rank knows the
whole rollout batch; of the rows that it is handed it reads their places and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...core.learner import Step, Update
from ...core.types import Batch, Loss, Policy, Rollouts
from ...runs.tracer import Tracer
from .contract import moved
from .cycle import ROW, Cycle
from .forward import Forward
from .rollout_batch import RolloutBatch, largest, summed


class Underway:
    """A rollout batch between its generation and the next.

    Args:
        trainer: TRL's.
        drawn: the rollout batch.
        step: the learner's; None where no response has a token that counts.
        tracer: of the rows that this rank is to trace.

    Attributes:
        update: the last that was begun.
    """

    def __init__(self, trainer: Any, drawn: RolloutBatch, step: Step | None, tracer: Tracer) -> None:
        self.drawn, self.step, self.tracer = drawn, step, tracer
        self.update: Update | None = None
        self._trainer, self._cycle = trainer, trainer.cycle
        self._rows: Tensor | None = None
        self._traced: tuple[Tensor, Batch, Loss] | None = None

    def update_of(self, model: Any, inputs: Mapping[str, Any]) -> Update | None:
        """The update that a micro-batch belongs to; None where there is nothing to learn from. All ranks call it.

        Raises:
            Unsupported: TRL's buffer, or its place in it, is not what this adapter takes it for.
        """
        cycle, trainer = self._cycle, self._trainer
        number, micro = cycle.place(trainer._step)
        chunks, buffer = cycle.chunks_of(number), _buffer(trainer, cycle)
        if buffer[chunks[micro]] is not inputs or trainer.current_gradient_accumulation_steps != cycle.accumulate:
            raise moved(
                f"GRPOTrainer is at micro-batch {micro} of {trainer.current_gradient_accumulation_steps} with another "
                "part of its rollout batch than expected"
            )
        if micro == 0 and self.step is not None:
            self.update = self._begun(self.step, number, model, buffer, chunks)
        return self.update

    def watch(self, rows: Tensor, batch: Batch, loss: Loss) -> None:
        """Before the backward pass of a micro-batch: in the last update its tokens are traced."""
        number, _ = self._cycle.place(self._trainer._step)
        if number == self._cycle.updates - 1:
            self.tracer.watch(rows, batch)
            self._traced = rows, batch, loss

    def settle(self) -> None:
        """After the backward pass of a micro-batch, whose loss was multiplied by the number of ranks."""
        if self._traced is None:
            return
        rows, batch, loss = self._traced
        if batch.policy.logprob.retains_grad and batch.policy.logprob.grad is not None:
            batch.policy.logprob.grad /= self._trainer.accelerator.num_processes
        self.tracer.add(rows, batch, loss)
        self._traced = None

    def check(self, lr: float) -> None:
        """Before the optimiser moves the weights: the learner's check, of what all ranks saw."""
        if self.update is None:
            return
        accelerator = self._trainer.accelerator
        seen = self.update.statistics.across(summed(accelerator), largest(accelerator), accelerator.device)
        self.update.statistics = seen
        self._trainer.learner.check(self.update, lr=lr)

    def _begun(
        self, step: Step, number: int, model: Any, buffer: Sequence[Mapping[str, Any]], chunks: Sequence[int]
    ) -> Update:
        rows = self._rows_of(buffer)
        update = step.update(rows[:, chunks].flatten(), self._cycle.pass_of(number), step.first + number)
        if update.observes:
            once = list(dict.fromkeys(chunks))
            look(self._trainer, update, model, [buffer[chunk] for chunk in once], rows[:, once].flatten())
        if number == self._cycle.updates - 1:
            mine = torch.cat([buffer[chunk][ROW] for chunk in chunks]).unique()
            self.tracer.choose(mine, step.rollouts, step.credit)
        return update

    def _rows_of(self, buffer: Sequence[Mapping[str, Any]]) -> Tensor:
        """[ranks, chunks, M] the places of all rows; gathered once, as TRL does not shuffle again."""
        if self._rows is not None:
            return self._rows
        mine = torch.stack([part[ROW] for part in buffer])
        rows: Tensor = self._trainer.accelerator.gather(mine[None])
        self._rows = rows
        return rows


def look(trainer: Any, update: Update, model: Any, parts: Sequence[Mapping[str, Any]], rows: Tensor) -> None:
    """The objective's look at the whole update with the current policy; all ranks call it for their rows.

    Args:
        parts: micro-batches of this rank that together hold its rows, each once.
        rows: of the parts of all ranks, in their order.
    """
    order = rows.argsort()
    order = order[torch.searchsorted(rows[order], update.rows)]
    update.observe(policy_now(trainer, model, parts, [update.of(part[ROW])[0] for part in parts]).rows(order))


@torch.no_grad()
def policy_now(
    trainer: Any, model: Any, parts: Sequence[Mapping[str, Any]], rollouts: Sequence[Rollouts], rows: int | None = None
) -> Policy:
    """What the current policy says of the parts of all ranks, in the order of ranks; all ranks call it.

    Args:
        parts: of this rank, as TRL has them.
        rollouts: their facts.
        rows: rows of one pass; None takes a part at once.
    """
    forward: Forward = trainer.forward_passes
    policies = [
        padded(forward.policy(model, part, temperature_of(facts, part), rows), facts.mask.shape[1])
        for part, facts in zip(parts, rollouts, strict=True)
    ]
    whole = {}
    for name in ("logprob", "entropy", "entropy_drift"):
        if getattr(policies[0], name) is not None:
            local = torch.cat([getattr(policy, name).float() for policy in policies])
            whole[name] = trainer.accelerator.gather(local.contiguous())
    return Policy(**whole)


def temperature_of(rollouts: Rollouts | None, inputs: Mapping[str, Any]) -> Tensor:
    """[M, T] > 0 everywhere of a micro-batch: padding is evaluated too, and read by nobody.

    Args:
        rollouts: its rows; None where there is nothing to learn from.
    """
    ones = torch.ones(inputs["completion_ids"].shape, device=inputs["completion_ids"].device)
    if rollouts is None:
        return ones
    assert rollouts.temperature is not None
    return rollouts.temperature[:, : ones.shape[1]].where(rollouts.mask[:, : ones.shape[1]], ones)


def padded(policy: Policy, width: int) -> Policy:
    """The policy of a micro-batch, as wide as the rollout batch."""
    known = {name: x for name, x in vars(policy).items() if x is not None}
    return Policy(**{name: pad(x, (0, width - x.shape[1])) for name, x in known.items()})


def _buffer(trainer: Any, cycle: Cycle) -> list[Mapping[str, Any]]:
    buffer = trainer._buffered_inputs
    if not isinstance(buffer, list) or len(buffer) != cycle.chunks or any(ROW not in part for part in buffer):
        raise moved("GRPOTrainer._buffered_inputs does not hold the steps_per_generation parts of a rollout batch")
    return buffer
