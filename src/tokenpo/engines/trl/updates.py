"""The learner's updates on one rollout batch of TRL's, micro-batch by micro-batch.

TRL shuffles single rows before it splits them over ranks; with minibatches of groups whole groups stay together. Every
rank knows the whole rollout batch; of the rows that it is handed it reads their places and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from ...base.errors import Unsupported
from ...core.learner import Step, Update
from ...core.seeds import keyed_generator
from ...core.types import Batch, Loss, Policy, Rollouts
from ...runs.tracer import Tracer
from .contract import moved
from .forward import Forward
from .rollout_batch import RolloutBatch, largest, summed

# The one thing that travels with TRL's rows: their places in the rollout batch.
ROW = "tokenpo_row"


class InFlightBatch:
    """A rollout batch between its generation and the next.

    Args:
        trainer: TRL's.
        batch: the rollout batch.
        step: the learner's; None where no response has a token that counts.
        tracer: of the rows that this rank is to trace.

    Attributes:
        update: the last that was begun.
    """

    def __init__(self, trainer: Any, batch: RolloutBatch, step: Step | None, tracer: Tracer) -> None:
        self.batch, self.step, self.tracer = batch, step, tracer
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
        chunks, buffer = cycle.chunks_of(number), trainer._buffered_inputs
        if not isinstance(buffer, list) or len(buffer) != cycle.chunks or any(ROW not in part for part in buffer):
            raise moved("GRPOTrainer._buffered_inputs does not hold the steps_per_generation parts of a rollout batch")
        if buffer[chunks[micro]] is not inputs or trainer.current_gradient_accumulation_steps != cycle.accumulate:
            raise moved(
                f"GRPOTrainer is at micro-batch {micro} of {trainer.current_gradient_accumulation_steps} with another "
                "part of its rollout batch than expected"
            )
        if micro == 0 and self.step is not None:
            self.update = self._begun(self.step, number, model, buffer, chunks)
        return self.update

    def watch(self, rows: Tensor, batch: Batch, loss: Loss) -> None:
        """Before the backward pass of a micro-batch whose tokens may be traced."""
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
        self, step: Step, number: int, model: Any, buffer: Sequence[dict[str, Any]], chunks: Sequence[int]
    ) -> Update:
        first = self._rows is None
        rows = self._rows_of(buffer)
        update = step.update(rows[:, chunks].flatten(), self._cycle.pass_of(number), step.first + number)
        if update.observes:
            once = list(dict.fromkeys(chunks))
            look(self._trainer, update, model, [buffer[chunk] for chunk in once], rows[:, once].flatten())
        if first:
            plan = [self._cycle.chunks_of(last) for last in reversed(range(self._cycle.updates))]
            mine = torch.cat([buffer[chunk][ROW].sort().values for chunks in plan for chunk in chunks])
            self.tracer.choose(mine, step)
        return update

    def _rows_of(self, buffer: Sequence[dict[str, Any]]) -> Tensor:
        """[ranks, chunks, M] the places of all rows; gathered once, as TRL does not shuffle again."""
        if self._rows is None:
            trainer = self._trainer
            if trainer.args.minibatch_by == "groups":
                draws = keyed_generator(trainer.args.seed, "minibatches", trainer.state.global_step)
                for part, dealt in zip(buffer, by_groups(buffer, trainer.num_generations, draws), strict=True):
                    part.update(dealt)  # in place, as TRL hands out these very parts
            self._rows = trainer.accelerator.gather(torch.stack([part[ROW] for part in buffer])[None])
        assert self._rows is not None
        return self._rows


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
        padded(forward.policy(model, part, rows), facts.mask.shape[1])
        for part, facts in zip(parts, rollouts, strict=True)
    ]
    whole = {}
    for name in ("logprob", "entropy", "entropy_drift"):
        if getattr(policies[0], name) is not None:
            local = torch.cat([getattr(policy, name).float() for policy in policies])
            whole[name] = trainer.accelerator.gather(local.contiguous())
    return Policy(**whole)


def padded(policy: Policy, width: int) -> Policy:
    """The policy of a micro-batch, as wide as the rollout batch."""
    known = {name: x for name, x in vars(policy).items() if x is not None}
    return Policy(**{name: pad(x, (0, width - x.shape[1])) for name, x in known.items()})


def by_groups(chunks: Sequence[Mapping[str, Any]], size: int, generator: torch.Generator) -> list[dict[str, Any]]:
    """The same rows of this rank in as many micro-batches, groups shuffled and whole, one behind the other.

    Args:
        chunks: all micro-batches of a rollout batch; what is a tensor with an axis or a list has a row for each row.
        size: rows of a group, which lie on this rank together.

    Raises:
        Unsupported: images, whose rows are not those of the batch.
    """
    if odd := [name for name in chunks[0] if name.startswith(("pixel", "image"))]:
        raise Unsupported(f"minibatch_by='groups' is for text only, and TRL drew {odd[0]}: set minibatch_by='rows'")
    places = torch.cat([chunk[ROW] for chunk in chunks]).argsort().view(-1, size)
    order = places[torch.randperm(len(places), generator=generator).to(places.device)].flatten()
    pieces = order.split([len(chunk[ROW]) for chunk in chunks])
    joined = {name: _joined([chunk[name] for chunk in chunks]) for name in chunks[0]}
    return [{name: _taken(values, rows) for name, values in joined.items()} for rows in pieces]


def _joined(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], list):
        return [item for part in parts for item in part]
    return torch.cat(list(parts)) if isinstance(parts[0], Tensor) and parts[0].dim() else parts[0]


def _taken(values: Any, rows: Tensor) -> Any:
    if isinstance(values, list):
        return [values[row] for row in rows.tolist()]
    return values[rows] if isinstance(values, Tensor) and values.dim() else values
