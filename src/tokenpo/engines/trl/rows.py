"""Facts and credit as tensors that travel with the rows: TRL shuffles and splits what it is given, row by row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ...core.types import Credit, Rollouts

PREFIX = "tokenpo_"
ROW = f"{PREFIX}row"
_FACTS = tuple(field.name for field in dataclasses.fields(Rollouts))


def packed(rollouts: Rollouts, credit: Credit, rows: slice, width: int) -> dict[str, Tensor]:
    """These rows of a rollout batch, [M] or [M, width] each, under names of our own."""
    fields = {name: getattr(rollouts, name) for name in _FACTS if getattr(rollouts, name) is not None}
    fields |= {"advantage": credit.advantage, "row": torch.arange(len(rollouts), device=rollouts.mask.device)}
    fields |= {f"signal_{i}": x for i, x in enumerate(credit.signals.values())}
    return {f"{PREFIX}{name}": x[rows, :width] if x.dim() == 2 else x[rows] for name, x in fields.items()}


def taken(inputs: Mapping[str, Any]) -> dict[str, Tensor]:
    """What `packed` gave, out of a micro-batch of TRL's."""
    return {name: x for name, x in inputs.items() if name.startswith(PREFIX)}


def unpacked(fields: Mapping[str, Tensor], signals: Sequence[Any]) -> tuple[Rollouts, Credit] | None:
    """Facts and credit of any rows; None where none of them has a response token.

    Args:
        fields: as `taken` gave them.
        signals: the keys of the credit's signals, in its order.
    """
    if not fields[f"{PREFIX}mask"].any():
        return None
    facts = {name: fields.get(f"{PREFIX}{name}") for name in _FACTS}
    values = {key: fields[f"{PREFIX}signal_{i}"] for i, key in enumerate(signals)}
    return Rollouts(**facts), Credit(fields[f"{PREFIX}advantage"], values)  # pyright: ignore[reportArgumentType]


def gathered(accelerator: Any, fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The rows of every rank, in the order of ranks, padded to the longest; every rank calls it with the same names."""
    if accelerator.num_processes == 1:
        return dict(fields)
    return {name: _gathered(accelerator, x, left="prompt_" in name) for name, x in fields.items()}


def _gathered(accelerator: Any, x: Tensor, *, left: bool) -> Tensor:
    # Not every backend gathers booleans.
    sent = x.to(torch.uint8) if x.dtype == torch.bool else x
    if x.dim() == 2:
        sent = accelerator.pad_across_processes(sent, dim=1, pad_first=left)
    return accelerator.gather(sent.contiguous()).to(x.dtype)


def joined(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Rows of several micro-batches of one rollout batch, which have one width."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def summed(accelerator: Any) -> Callable[[Tensor], Tensor]:
    """A vector to its sum over the ranks, in float32 at least."""
    return lambda x: accelerator.gather(x[None]).sum(0)


def largest(accelerator: Any) -> Callable[[Tensor], Tensor]:
    """A vector to its largest entries over the ranks."""
    return lambda x: accelerator.gather(x[None]).amax(0)
