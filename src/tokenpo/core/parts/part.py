"""What every named choice of an objective is: a frozen value that says what it needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..types import Batch, Rollouts, Trust


class Part:
    """A frozen dataclass that makes one choice. Parts may hold parts; `walk` finds them.

    Attributes:
        needs: optional inputs it reads: field names of `Rollouts` or `Policy`.
        idle_on_policy: true where it does nothing as long as the current policy is the old one, so that a run with one
            update per rollout would never feel it; engines warn.
        assumes_on_policy: true where it takes the current policy for the one that sampled and corrects for nothing, so
            that further updates on the same rollouts are biased; engines warn.
        corrects_rollout: true where it weighs a token against the policy that sampled it, so that a further correction
            for that policy would count it twice; engines add none.
        entropy_gradient: true where it sends a gradient through `Policy.entropy`; engines then keep its graph.
    """

    @property
    def needs(self) -> frozenset[str]:
        return frozenset()

    @property
    def idle_on_policy(self) -> bool:
        return False

    @property
    def assumes_on_policy(self) -> bool:
        return False

    @property
    def corrects_rollout(self) -> bool:
        return False

    @property
    def entropy_gradient(self) -> bool:
        return False


class Signal(Part):
    """A feature of the rollouts, computed in phase one on whole groups without gradient."""

    def __call__(self, rollouts: Rollouts) -> Tensor:
        """[N, T], finite where the mask is true."""
        raise NotImplementedError


class Look(Protocol):
    """The surrogate of a whole optimiser step, evaluated when it is asked for."""

    def __call__(self) -> Trust:
        """Every field."""
        ...

    def clipped(self) -> Tensor:
        """That field alone, [N, T] bool; the others are not kept."""
        ...


class BatchSignal(Part):
    """A feature that also depends on the current policy over one whole optimiser step, computed without gradient.

    An objective that holds one has scope "batch": before its micro-batches are evaluated, `Objective.observe` must see
    them all at once.
    """

    @property
    def draws(self) -> bool:
        """It chooses tokens at random, with the generator it is given."""
        return False

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator | None) -> Tensor:
        """[N, T], finite where the mask is true, or bool where it marks tokens. `trust()` evaluates the surrogate; a
        signal inside the surrogate cannot ask for it. Signals that this one holds are in the batch already."""
        raise NotImplementedError


class Memory(Part):
    """A few numbers that go from one rollout batch to the next: a controller's coefficient, a running mean.

    The numbers are values outside the part, so that engines can put them into a checkpoint as they are.
    """

    def start(self) -> Mapping[str, float]:
        """The numbers before the first rollout batch; empty where nothing is known yet."""
        raise NotImplementedError

    def after(self, numbers: Mapping[str, float], rollouts: Rollouts) -> Mapping[str, float]:
        """The numbers after a rollout batch: everything that was drawn, in whole groups."""
        raise NotImplementedError


class MemorySignal(Memory):
    """A memory that phase one shows as a signal."""

    def __call__(self, rollouts: Rollouts, numbers: Mapping[str, float]) -> Tensor:
        """[N, T], finite where the mask is true, from this batch and the numbers that earlier ones left."""
        raise NotImplementedError


def walk(part: Any, *, inner_first: bool = False, outside: tuple[type, ...] = ()) -> Iterator[Part]:
    """Every part inside a value, itself included, outermost first; `inner_first` gives a part after those it holds.

    Args:
        outside: kinds of part that are left out, with all they hold.
    """
    if isinstance(part, outside):
        return
    if isinstance(part, Part) and not inner_first:
        yield part
    if isinstance(part, tuple):
        for item in part:
            yield from walk(item, inner_first=inner_first, outside=outside)
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        for field in dataclasses.fields(part):
            yield from walk(getattr(part, field.name), inner_first=inner_first, outside=outside)
    if isinstance(part, Part) and inner_first:
        yield part
