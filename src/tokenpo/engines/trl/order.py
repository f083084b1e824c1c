"""Which rows of a rollout batch an optimiser step takes: TRL shuffles single rows; here whole groups stay together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...base.errors import Unsupported
from .cycle import Cycle
from .rows import ROW


def require_whole_groups(cycle: Cycle, rows: int, size: int) -> None:
    """Raises Unsupported where an optimiser step would take a part of a group from a process.

    Args:
        rows: of a micro-batch, on each process.
        size: rows of a group.
    """
    if cycle.accumulate % cycle.chunks == 0:
        return  # every step takes the whole rollout batch
    demand = (
        f"TokenPOConfig.minibatch_by='groups' wants whole groups of num_generations = {size} rows in every optimiser "
        "step"
    )
    if cycle.chunks % cycle.accumulate:
        raise Unsupported(
            f"{demand}, and steps of gradient_accumulation_steps = {cycle.accumulate} micro-batches do not divide the "
            f"steps_per_generation = {cycle.chunks} of a rollout batch: make it a multiple, or set minibatch_by='rows'"
        )
    if rows * cycle.accumulate % size:
        raise Unsupported(
            f"{demand}, and a process takes per_device_train_batch_size x gradient_accumulation_steps = "
            f"{rows * cycle.accumulate} rows: make them a multiple of {size}, or set minibatch_by='rows'"
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
