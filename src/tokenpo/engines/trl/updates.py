"""The learner's updates on one rollout batch of TRL's, micro-batch by micro-batch.

TRL shuffles single rows before it splits them over ranks; with minibatches of groups whole groups stay together. Every
rank knows the whole rollout batch, so that of the rows TRL hands it only their places are read.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...base.errors import Unsupported, present
from ...core.learner import Step
from ...core.seeds import keyed_generator
from ...core.types import Batch, Loss, Policy, Rollouts
from ...core.update import Update
from ...runs.records import Tracer
from .contract import moved
from .forward import ROW, padded
from .rollout_batch import RolloutBatch


class InFlightBatch:
    """A rollout batch between its generation and the next.

    Args:
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
            Unsupported: TRL is at another place of its buffer than this adapter expects.
        """
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
            self._rows = self._places(buffer)
            last_first = [cycle.chunks_of(update) for update in reversed(range(cycle.updates))]
            mine = torch.cat([buffer[chunk][ROW].sort().values for plan in last_first for chunk in plan])
            self.tracer.choose(mine, self.step)
        rows = self._rows[:, chunks].flatten()
        self.update = update = self.step.update(rows, cycle.pass_of(number), self.step.first + number)
        if update.observes:
            update.observe(self._policy(update, model, chunks))
        return update

    def _policy(self, update: Update, model: Any, chunks: Sequence[int]) -> Policy:
        """The current policy on all rows of an update that takes these chunks."""
        once, rows = list(dict.fromkeys(chunks)), present(self._rows, "the places of the rows")
        parts = [self._trainer._buffered_inputs[chunk] for chunk in once]
        return policy_of(self._trainer, update, model, parts, rows[:, once].flatten())

    def watch(self, rows: Tensor, batch: Batch, loss: Loss) -> None:
        """Before the backward pass of a micro-batch whose tokens may be traced."""
        self.tracer.watch(rows, batch)
        self._traced = rows, batch, loss

    def settle(self) -> None:
        """After the backward pass of a micro-batch, whose loss was multiplied by the number of ranks."""
        if self._traced is None:
            return
        (rows, batch, loss), self._traced = self._traced, None
        if batch.policy.logprob.retains_grad and batch.policy.logprob.grad is not None:
            batch.policy.logprob.grad /= self._trainer.accelerator.num_processes
        self.tracer.add(rows, batch, loss)

    def check(self, lr: float) -> bool:
        """Before the optimiser moves the weights: the learner's check, of the statistics of all ranks, which all have
        its answer."""
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
        """After the last optimiser step, on all ranks: the KL that it leaves, where the learner holds one."""
        trainer, cycle, update = self._trainer, self._cycle, self.update
        if update is not None and trainer.learner.measures_end:
            policy = self._policy(update, trainer.model, cycle.chunks_of(cycle.updates - 1))
            trainer.learner.end(update, policy)

    def _places(self, buffer: Sequence[dict[str, Any]]) -> Tensor:
        """[ranks, chunks, M] the places of all rows; gathered once, as TRL does not shuffle again."""
        trainer = self._trainer
        if trainer.args.minibatch_by == "groups":
            draws = keyed_generator(trainer.args.seed, "minibatches", trainer.state.global_step)
            for part, dealt in zip(buffer, by_groups(buffer, trainer.num_generations, draws), strict=True):
                part.update(dealt)  # in place, as TRL hands out these very parts
        return trainer.accelerator.gather(torch.stack([part[ROW] for part in buffer])[None])


def policy_of(trainer: Any, update: Update, model: Any, parts: Sequence[Mapping[str, Any]], rows: Tensor) -> Policy:
    """The current policy on all rows of the update, in their order; all ranks call it for their rows.

    Args:
        parts: micro-batches of this rank that together hold its rows, each once.
        rows: of the parts of all ranks, in their order.
    """
    order = rows.argsort()
    order = order[torch.searchsorted(rows[order], update.rows)]
    return policy_now(trainer, model, parts, [update.of(part[ROW])[0] for part in parts]).rows(order)


@torch.no_grad()
def policy_now(
    trainer: Any, model: Any, parts: Sequence[Mapping[str, Any]], rollouts: Sequence[Rollouts], rows: int | None = None
) -> Policy:
    """The current policy on the parts of all ranks, in the order of ranks; all ranks call it.

    Args:
        parts: micro-batches of this rank, as TRL has them.
        rollouts: of each part.
        rows: rows of one pass; None takes a part at once.
    """
    score = trainer.forward_passes.policy
    widths = [facts.mask.shape[1] for facts in rollouts]
    policies = [padded(score(model, part, rows), width) for part, width in zip(parts, widths, strict=True)]
    known = [name for name, x in vars(policies[0]).items() if x is not None]
    local = {name: torch.cat([policy.need(name).float() for policy in policies]) for name in known}
    return Policy(**{name: trainer.accelerator.gather(x.contiguous()) for name, x in local.items()})


def by_groups(chunks: Sequence[Mapping[str, Any]], size: int, generator: torch.Generator) -> list[dict[str, Any]]:
    """The same rows of this rank in as many micro-batches, groups shuffled and whole, one behind the other.

    Args:
        chunks: all micro-batches of a rollout batch; every list, and tensor with an axis, has an entry for each row.
        size: rows of a group, which lie on this rank together.

    Raises:
        Unsupported: images, whose rows are not those of the batch.
    """
    if odd := [name for name in chunks[0] if name.startswith(("pixel", "image"))]:
        raise Unsupported(f"minibatch_by='groups' is for text only, and TRL drew {odd[0]}: set minibatch_by='rows'")
    places = torch.cat([chunk[ROW] for chunk in chunks]).argsort().view(-1, size)
    order = places[torch.randperm(len(places), generator=generator).to(places.device)].flatten()
    dealt: list[dict[str, Any]] = [{} for _ in chunks]
    for name, first in chunks[0].items():
        for chunk, rows in zip(dealt, order.split([len(chunk[ROW]) for chunk in chunks]), strict=True):
            if isinstance(first, list):
                items = [item for part in chunks for item in part[name]]
                chunk[name] = [items[row] for row in rows.tolist()]
            elif isinstance(first, Tensor) and first.dim():
                chunk[name] = torch.cat([part[name] for part in chunks])[rows]
            else:
                chunk[name] = first
    return dealt
