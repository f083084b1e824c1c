"""How TRL cuts a rollout batch into micro-batches and optimiser steps. Imports no TRL.

A rollout batch is split into `steps_per_generation` chunks. The micro-batches are these chunks in order, repeated
`num_iterations` times. An optimiser step takes `gradient_accumulation_steps` micro-batches.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...core.objective import Objective


@dataclass(frozen=True)
class Cycle:
    """The micro-batches of one rollout batch, the same on every rank.

    Args:
        accumulate: micro-batches per optimiser step.
        chunks: chunks per rollout batch.
        iterations: how often each chunk is taken.
        passes: optimiser passes of the objective.
        rows: rows per micro-batch.
    """

    accumulate: int
    chunks: int
    iterations: int
    passes: int = 1
    rows: int = 1

    @staticmethod
    def of(args: Any, objective: Objective) -> "Cycle":
        """The cycle of an objective under TRL's settings `args`."""
        steps, chunks, passes = args.gradient_accumulation_steps, args.steps_per_generation, len(objective.split())
        return Cycle(steps, chunks, args.num_iterations, passes, args.per_device_train_batch_size)

    @property
    def micro_steps(self) -> int:
        """Micro-batches between one generation and the next."""
        return self.chunks * self.iterations

    @property
    def updates(self) -> int:
        """Optimiser steps between one generation and the next."""
        return self.micro_steps // self.accumulate

    @property
    def whole(self) -> bool:
        """Whether every optimiser step takes the whole rollout batch."""
        return self.accumulate % self.chunks == 0

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

    def split_groups(self, size: int) -> Iterator[str]:
        """Yields a sentence if an optimiser step would split a group of `size` rows."""
        demand = (
            f"TokenPOConfig.minibatch_by='groups' wants whole groups of num_generations = {size} rows in every "
            "optimiser step"
        )
        if not self.whole and self.chunks % self.accumulate:
            yield (
                f"{demand}, and steps of gradient_accumulation_steps = {self.accumulate} micro-batches do not divide "
                f"the steps_per_generation = {self.chunks} of a rollout batch: make it a multiple, or set "
                "minibatch_by='rows'"
            )
        elif not self.whole and self.rows * self.accumulate % size:
            yield (
                f"{demand}, and a process takes per_device_train_batch_size x gradient_accumulation_steps = "
                f"{self.rows * self.accumulate} rows: make them a multiple of {size}, or set minibatch_by='rows'"
            )
