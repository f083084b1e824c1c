"""Rows and fields of verl's TransferQueue."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import transfer_queue as tq
from tensordict import TensorDict

from ...base.errors import Unsupported


def some(batch: Any, rows: Sequence[int]) -> Any:
    """Some rows of verl's batch, in this order."""
    return type(batch)(
        keys=[batch.keys[row] for row in rows],
        tags=[batch.tags[row] for row in rows],
        partition_id=batch.partition_id,
        extra_info=dict(batch.extra_info),
    )


def get(batch: Any, fields: Sequence[str]) -> TensorDict:
    """These fields of every row, as far as they are filled."""
    return tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=list(fields))


def put(batch: Any, fields: TensorDict) -> Any:
    """Fields of every row; verl's batch as it is afterwards."""
    return tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)


def over_steps(metrics_of_steps: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """verl's metrics of several updates as one: the mean, or the largest or smallest where the name says so."""
    gathered: dict[str, list[float]] = {}
    for metrics in metrics_of_steps:
        for name, value in metrics.items():
            gathered.setdefault(name, []).append(float(value))
    return {name: _reduced(name, values) for name, values in gathered.items()}


def _reduced(name: str, values: Sequence[float]) -> float:
    if "max" in name:
        return max(values)
    return min(values) if "min" in name else sum(values) / len(values)


def one_output_each(keys: Sequence[str]) -> None:
    """Requires one response per session.

    Raises:
        Unsupported: a session has several outputs, which share one reward: none of them is a member of a group.
    """
    several = [key for key in keys if not key.endswith("_0")]
    if several:
        raise Unsupported(
            f"verl's agent loop gave more than one output for a session ({several[0]}), and tokenpo compares one "
            "response a session: let the loop return one output"
        )
