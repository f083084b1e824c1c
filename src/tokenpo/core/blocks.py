"""The loss of many rows, computed a block of rows at a time so that its intermediate tensors stay in the cache.

Losses of disjoint rows add up, so each block's gradient at the policy's values is taken as soon as its loss is known,
and nothing else of the block is kept. A credit stage with many intermediate tensors is computed likewise, a few whole
groups at a time. Axes as in `types`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .ops.known import known
from .types import Batch, Loss, Policy, Rollouts, Trust

# Entries of a block [N', T]: a CPU's cache holds a dozen such tensors of float32; a GPU needs more to be busy.
_PLACES = {"cpu": 2**16}
_PLACES_ELSEWHERE = 2**22


def in_blocks(loss: Callable[[Batch], Loss], batch: Batch) -> Loss:
    """`loss(batch)`; the loss of a row must not depend on other rows.

    A batch that fits one block is computed directly. Otherwise the value's graph is a single step to the policy's
    fields, and can be differentiated once.
    """
    n, size = len(batch.mask), _rows(batch.mask)
    if n <= size:
        return loss(batch)
    fields = {name: x for name, x in vars(batch.policy).items() if x is not None}
    leaves = {name: x for name, x in fields.items() if torch.is_grad_enabled() and x.requires_grad}
    pull = {name: torch.empty_like(x, memory_format=torch.contiguous_format) for name, x in leaves.items()}
    values: list[Tensor] = []
    terms: dict[str, Tensor] = {}
    for rows, part in _parts(batch, size):
        found = _loss_and_pull(loss, part, {name: x[rows] for name, x in pull.items()})
        values.append(found.value.detach())
        for name, x in found.terms.items():
            terms[name] = _placed(x, terms.get(name), rows, n)
    value = torch.stack(values).sum()
    return Loss(known(value, list(leaves.values()), list(pull.values())) if leaves else value, terms)


def in_groups(credit: Callable[[Rollouts, Tensor], Tensor], rollouts: Rollouts, bonus: Tensor) -> Tensor:
    """`credit(rollouts, bonus)` [N, T], a few whole groups at a time; that of a group must not depend on other groups.

    Args:
        bonus: [N], passed on to `credit`.
    """
    n, t = rollouts.mask.shape
    size = _rows(rollouts.mask)
    if size >= n:
        return credit(rollouts, bonus)
    order = rollouts.group.argsort(stable=True)
    ends = rollouts.group[order].unique_consecutive(return_counts=True)[1].cumsum(0).tolist()
    whole: Tensor | None = None
    for start, end in _spans(ends, size):
        rows = order[start:end]
        x = credit(rollouts.rows(rows), bonus[rows])
        whole = x.new_empty(n, t) if whole is None else whole
        whole[rows] = x
    assert whole is not None  # no batch is empty
    return whole


def _spans(ends: list[int], size: int) -> Iterator[tuple[int, int]]:
    """Ranges (start, end) of whole groups, at most `size` rows or a single group; a group ends at each of `ends`."""
    start = last = 0
    for end in ends:
        if last > start and end - start > size:
            yield start, last
            start = last
        last = end
    yield start, last


@dataclass(frozen=True)
class TrustInBlocks:
    """`surrogate(batch)`, evaluated when asked for, a block of rows at a time and without gradient."""

    surrogate: Callable[[Batch], Trust]
    batch: Batch

    def __call__(self) -> Trust:
        """Every field."""
        return Trust(**self._fields([field.name for field in dataclasses.fields(Trust)]))

    def clipped(self) -> Tensor:
        """That field alone, [N, T] bool."""
        return self._fields(["clipped"])["clipped"]

    def _fields(self, names: list[str]) -> dict[str, Any]:
        whole: dict[str, Any] = {}
        for rows, part in _parts(self.batch, _rows(self.batch.mask)):
            trust = self.surrogate(part)
            for name in names:
                x = getattr(trust, name)
                whole[name] = _placed(x, whole.get(name), rows, len(self.batch.mask)) if isinstance(x, Tensor) else x
        return whole


def _rows(mask: Tensor) -> int:
    """Rows of a block."""
    return max(1, _PLACES.get(mask.device.type, _PLACES_ELSEWHERE) // mask.shape[1])


def _parts(batch: Batch, size: int) -> Iterator[tuple[slice, Batch]]:
    """Blocks of rows, detached before they are sliced: a slice would keep the graph of the whole."""
    batch = batch.with_policy(Policy(**{k: x.detach() for k, x in vars(batch.policy).items() if x is not None}))
    for start in range(0, len(batch.mask), size):
        rows = slice(start, start + size)
        yield rows, batch.rows(rows)


def _placed(x: Tensor, whole: Tensor | None, rows: slice, n: int) -> Tensor:
    """Writes x to the `rows` of `whole` [n, ...], which is made if there is none."""
    whole = x.new_empty(n, *x.shape[1:]) if whole is None else whole
    whole[rows] = x
    return whole


def _loss_and_pull(loss: Callable[[Batch], Loss], part: Batch, pull: dict[str, Tensor]) -> Loss:
    """The loss of a block; writes its gradient at each of the policy's fields into `pull`."""
    leaves = [getattr(part.policy, name).requires_grad_() for name in pull]
    found = loss(part)
    if leaves:
        for place, gradient in zip(
            pull.values(), torch.autograd.grad(found.value, leaves, materialize_grads=True), strict=True
        ):
            place.copy_(gradient)
    return found
