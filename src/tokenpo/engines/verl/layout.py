"""verl's layout of a batch: nested tensors [N, *] of responses under its own field names."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.workers.utils.padding import response_to_nested

from ...base.errors import MissingInput
from ...core.objective import Objective
from ...core.parts import BatchSignal, MemorySignal, Part, Signal, walk
from .provides import TOKEN_FIELDS

# Fields that phase one adds to verl's batch, one number a row.
REWARD, GROUP, SEQUENCES = "tokenpo_reward", "tokenpo_group", "tokenpo_sequences"


def padded(field: Any) -> Tensor:
    """[N, T] of a nested tensor [N, *], zeros behind each row; T is the longest row. Keeps the graph."""
    values, offsets = field.values(), field.offsets()
    lengths = offsets.diff()
    inside = torch.arange(int(lengths.max()), device=values.device) < lengths[:, None]
    return values.new_zeros(inside.shape).masked_scatter(inside, values)


def texts(field: Any) -> list[str]:
    """A field of strings, one a row, however it comes back from verl's queue."""
    return [str(text) for text in (field.tolist() if hasattr(field, "tolist") else field)]


def token_facts(data: TensorDict, needs: Iterable[str], temperature: float) -> dict[str, Tensor]:
    """The mask [N, T] and the token fields [N, T] of `Rollouts` that `needs` names, under our names.

    Raises:
        MissingInput: verl did not fill a field.
    """
    mask = padded(data["response_mask"]).bool()
    facts = {"mask": mask}
    for name in sorted({"old_logprob", *needs}):
        if name == "temperature":
            facts[name] = torch.full(mask.shape, temperature, device=mask.device)
        if name in TOKEN_FIELDS:
            field, remedy = TOKEN_FIELDS[name]
            if field not in data:
                raise MissingInput(f"verl's batch holds no {field} for {name}: set {remedy}")
            facts[name] = padded(data[field])
    return facts


def signal_fields(objective: Objective) -> dict[Part, str]:
    """The field of each signal in verl's batch; every process numbers them alike."""
    kinds = (Signal, MemorySignal, BatchSignal)
    parts = dict.fromkeys(part for part in walk(objective) if isinstance(part, kinds))
    return {part: f"tokenpo_signal_{number}" for number, part in enumerate(parts)}


def spread(values: Tensor, live: Tensor, response_mask: Any) -> Tensor:
    """Nested like `response_mask` [N, *]: `values` [L, T] in the rows where `live` [N] is true, zeros elsewhere.

    T may exceed the longest of these rows, where they are some of a batch, or fall short of it, where that is dead.
    """
    longest = int(response_mask.offsets().diff().max())
    all_rows = values.new_zeros(len(live), longest)
    all_rows[live, : values.shape[1]] = values[:, :longest]
    return response_to_nested(all_rows, response_mask)
