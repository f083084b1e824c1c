"""How TRL spreads one rollout batch over micro-batches and optimiser steps.

A rollout batch is split into `steps_per_generation` chunks, and a micro-batch is one chunk: all of them in turn,
`num_iterations` times over. An optimiser step takes `gradient_accumulation_steps` micro-batches. TRL shuffles single
rows before it splits; with minibatches of groups whole groups stay together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...base.errors import Unsupported
from ...core.objective import Objective

# The one thing that travels with TRL's rows: their places in the rollout batch.
ROW = "tokenpo_row"


@dataclass(frozen=True)
class Cycle:
    """One rollout batch.

    Args:
        accumulate: micro-batches of an optimiser step.
        chunks: parts of the rollout batch, on every rank.
        iterations: how often each part is taken.
        passes: optimiser passes of the objective.

    Raises:
        Unsupported: an optimiser step would see two rollout batches, or two passes.
    """

    accumulate: int
    chunks: int
    iterations: int
    passes: int = 1

    @staticmethod
    def of(accumulate: int, chunks: int, iterations: int, objective: Objective) -> Cycle:
        passes = len(objective.split())
        if iterations % passes:
            raise Unsupported(
                f"{objective.name} takes {passes} optimiser passes over a rollout batch, which TRL's num_iterations = "
                f"{iterations} cannot hold: set num_iterations={passes}"
            )
        return Cycle(accumulate, chunks, iterations, passes)

    def __post_init__(self) -> None:
        if self.micro_steps % self.accumulate:
            raise Unsupported(
                f"an optimiser step of TRL's, gradient_accumulation_steps = {self.accumulate} micro-batches, would see "
                f"more than one rollout batch, steps_per_generation x num_iterations = {self.chunks} x "
                f"{self.iterations}, "
                "and its denominators are not known before all of them are drawn: set steps_per_generation="
                f"{-(-self.chunks // self.accumulate) * self.accumulate}"
            )
        if self.micro_steps // self.passes % self.accumulate:
            raise Unsupported(
                f"an optimiser step of TRL's, gradient_accumulation_steps = {self.accumulate} micro-batches, would see "
                f"two passes of steps_per_generation = {self.chunks}: set steps_per_generation={self.accumulate}"
            )

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
        """The chunk of every micro-batch of an optimiser step, a chunk twice where iterations share the step."""
        return [(update * self.accumulate + i) % self.chunks for i in range(self.accumulate)]

    def pass_of(self, update: int) -> int:
        """The optimiser pass of an optimiser step."""
        return update * self.passes // self.updates

    def require_whole_groups(self, rows: int, size: int) -> None:
        """Raises Unsupported where an optimiser step would take a part of a group from a process.

        Args:
            rows: of a micro-batch, on each process.
            size: rows of a group.
        """
        if self.accumulate % self.chunks == 0:
            return  # every step takes the whole rollout batch
        demand = (
            f"TokenPOConfig.minibatch_by='groups' wants whole groups of num_generations = {size} rows in every "
            "optimiser step"
        )
        if self.chunks % self.accumulate:
            raise Unsupported(
                f"{demand}, and steps of gradient_accumulation_steps = {self.accumulate} micro-batches do not divide "
                f"the steps_per_generation = {self.chunks} of a rollout batch: make it a multiple, or set "
                "minibatch_by='rows'"
            )
        if rows * self.accumulate % size:
            raise Unsupported(
                f"{demand}, and a process takes per_device_train_batch_size x gradient_accumulation_steps = "
                f"{rows * self.accumulate} rows: make them a multiple of {size}, or set minibatch_by='rows'"
            )


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
