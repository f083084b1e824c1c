"""Phase two: the optimiser steps that TRL takes on one rollout batch, with denominators of the whole step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...core.objective import Objective
from ...core.parts import BatchSignal
from ...core.parts.part import walk
from ...core.seeds import keyed_generator
from ...core.types import Batch, Credit, Loss, Policy, Rollouts, Totals
from ...runs.tally import Tally, Tracer
from ..embedded.step import wanted
from .contract import moved
from .cycle import Cycle
from .forward import Forward
from .phase_one import Drawn
from .rows import PREFIX, ROW, gathered, joined, taken, unpacked


@dataclass
class Step:
    """One optimiser step.

    Args:
        objective: of the pass that it belongs to.
        totals: over all of its micro-batches and ranks.
        signals: of the current policy, for each micro-batch; empty for objectives of row scope.
        update: its number within the rollout batch; None in an evaluation.
        micro: which of its micro-batches this is.
    """

    objective: Objective
    totals: Totals
    signals: Sequence[Mapping[Any, Tensor]]
    update: int | None = None
    micro: int = 0


@dataclass
class RolloutBatch:
    """What a trainer knows of the rollout batch that it trains on, between its generation and the next.

    Args:
        counts: totals of each chunk over all ranks; None before the first micro-batch.
        step: the last optimiser step that was begun.
        traced: a micro-batch that waits for its backward pass, to be traced.
    """

    drawn: Drawn
    tally: Tally
    tracer: Tracer
    counts: list[Totals] | None = None
    step: Step | None = None
    traced: tuple[Tensor, Batch, Loss] | None = None

    def settle(self, processes: int) -> None:
        """After the backward pass of the micro-batch that is traced: its losses were multiplied by `processes`."""
        if self.traced is None:
            return
        rows, batch, loss = self.traced
        if batch.policy.logprob.retains_grad and batch.policy.logprob.grad is not None:
            batch.policy.logprob.grad /= processes
        self.tracer.add(rows, batch, loss)
        self.traced = None


def step_of(trainer: Any, cycle: Cycle, current: RolloutBatch, model: Any, inputs: Mapping[str, Any]) -> Step:
    """The optimiser step that a micro-batch belongs to; all ranks call it for theirs.

    Raises:
        Unsupported: TRL's buffer, or its place in it, is not what this adapter takes it for.
    """
    update, micro = cycle.place(trainer._step)
    chunks = cycle.chunks_of(update)
    buffer = _buffer(trainer, cycle)
    if buffer[chunks[micro]] is not inputs or trainer.current_gradient_accumulation_steps != cycle.accumulate:
        raise moved(
            f"GRPOTrainer is at micro-batch {micro} of {trainer.current_gradient_accumulation_steps} with another "
            f"part of its rollout batch than expected"
        )
    if current.counts is None:
        current.counts = _counts(trainer, buffer)
    if current.step is None or current.step.update != update:
        objective = trainer.policy_objective.split()[cycle.pass_of(update)]
        totals = _sum([current.counts[chunk] for chunk in chunks])
        parts = [buffer[chunk] for chunk in chunks]
        signals = _observed(trainer, objective, model, parts) if objective.scope == "batch" else ()
        current.step = Step(objective, totals, signals, update)
        current.tally.add_minibatch(totals)
    current.step.micro = micro
    return current.step


def evaluated(trainer: Any, objective: Objective, model: Any, inputs: Mapping[str, Any]) -> Step:
    """An evaluation batch as a step of its own."""
    signals = _observed(trainer, objective, model, [inputs]) if objective.scope == "batch" else ()
    return Step(objective, _sum(_counts(trainer, [inputs])), signals)


def rows_held(step: Step, inputs: Mapping[str, Any], keys: Sequence[Any]) -> tuple[Rollouts, Credit] | None:
    """The rows of a micro-batch, with the signals of its step; None where none has a response token."""
    rows = unpacked(taken(inputs), keys)
    if rows is None or not step.signals:
        return rows
    rollouts, credit = rows
    return rollouts, Credit(credit.advantage, {**credit.signals, **step.signals[step.micro]})


def temperature_of(inputs: Mapping[str, Any]) -> Tensor:
    """[M, T] > 0 everywhere: padding is evaluated too, and read by nobody."""
    return inputs[f"{PREFIX}temperature"].masked_fill(~inputs[f"{PREFIX}mask"], 1.0)


def rows_of(parts: Sequence[Mapping[str, Any]]) -> Tensor:
    """[M] places in the rollout batch."""
    return torch.cat([part[ROW] for part in parts])


def _buffer(trainer: Any, cycle: Cycle) -> list[Mapping[str, Any]]:
    buffer = trainer._buffered_inputs
    if not isinstance(buffer, list) or len(buffer) != cycle.chunks or any(ROW not in part for part in buffer):
        raise moved("GRPOTrainer._buffered_inputs does not hold the steps_per_generation parts of a rollout batch")
    return buffer


def _counts(trainer: Any, parts: Sequence[Mapping[str, Any]]) -> list[Totals]:
    """Totals of each part over all ranks."""
    masks = [part[f"{PREFIX}mask"] for part in parts]
    local = torch.stack([torch.stack([mask.sum(), mask.any(1).sum()]) for mask in masks])
    ranks = trainer.accelerator.gather(local[None]).sum(0).tolist()
    return [Totals(tokens, sequences, trainer.max_completion_length) for tokens, sequences in ranks]


def _sum(counts: Sequence[Totals]) -> Totals:
    total = counts[0]
    for more in counts[1:]:
        total = total + more
    return total


def _observed(
    trainer: Any, objective: Objective, model: Any, parts: Sequence[Mapping[str, Any]]
) -> list[dict[Any, Tensor]]:
    """The objective's look at the whole step with the current policy: its signals for each micro-batch.

    The rows are put in the order of the rollout batch, so that neither shuffling nor the number of ranks changes what
    is drawn.
    """
    forward: Forward = trainer.forward_passes
    with torch.no_grad():
        policies = [forward.policy(model, part, temperature_of(part)) for part in parts]
    local = joined([taken(part) for part in parts])
    local |= {f"policy_{name}": torch.cat([getattr(p, name).float() for p in policies]) for name in _known(policies[0])}
    all_rows = gathered(trainer.accelerator, local)
    order = all_rows[ROW].argsort(stable=True)
    fields = {name: values[order] for name, values in all_rows.items()}
    unpacked_rows = unpacked(fields, trainer.signal_keys)
    if unpacked_rows is None:
        return []
    rollouts, credit = unpacked_rows
    policy = Policy(**{name: fields[f"policy_{name}"] for name in _known(policies[0])})
    generator = keyed_generator(trainer.args.seed, "observe", trainer.state.global_step)
    batch = objective.observe(Batch(rollouts, credit, wanted(policy, objective.needs)), generator)
    back = order.argsort()
    first = trainer.accelerator.process_index * len(local[ROW])
    mine = back[first : first + len(local[ROW])]
    width = local[f"{PREFIX}mask"].shape[1]
    new = {part: batch.signal(part)[mine, :width] for part in walk(objective) if isinstance(part, BatchSignal)}
    sizes = [len(part[ROW]) for part in parts]
    signals = {key: signal.split(sizes) for key, signal in new.items()}
    return [{key: pieces[i] for key, pieces in signals.items()} for i in range(len(parts))]


def _known(policy: Policy) -> list[str]:
    return [name for name in ("logprob", "entropy", "entropy_drift") if getattr(policy, name) is not None]
