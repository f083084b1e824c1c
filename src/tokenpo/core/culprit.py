"""Where a loss or a gradient that is not finite comes from: the parts are asked again, and their numbers looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .objective import Objective
from .protocol import Answers
from .types import Batch, Policy, Totals, Trust

# What is said where no part is to be named.
SOUND = "each part's answer is finite, and their product or sum is not"


@dataclass(frozen=True)
class Broken:
    """A number that is not finite.

    Args:
        what: slot and part, or what of them.
        row: of the rows that were looked at.
        token: of the response.
        padding: it stands behind the response, where phase two takes it times 0, which is NaN.
    """

    what: str
    value: float
    row: int
    token: int
    padding: bool

    def __str__(self) -> str:
        place = "behind the end" if self.padding else f"on token {self.token}"
        return f"{self.what} is {self.value:g} {place} of rollout {self.row}"


def broken(objective: Objective, batch: Batch, totals: Totals) -> Broken | None:
    """The first number that is not finite in what the parts answer, in the order in which they are asked.

    The response tokens are looked at first, then the gradients that parts pass on to them, then padding.

    Args:
        batch: rows whose loss or gradient is not finite, with what `observe` adds to them.
        totals: of the optimiser step.

    Returns:
        None where every number is finite: then it is their product or their sum that is not.
    """
    fields = {name: x.detach() for name, x in vars(batch.policy).items() if x is not None}
    for kind, padding in ((_Numbers, False), (_Gradients, False), (_Numbers, True)):
        leaves = {name: x.clone().requires_grad_() for name, x in fields.items()}
        seen = objective.seen(batch.with_policy(Policy(**leaves)))
        try:
            look = kind(objective.name, ~batch.mask if padding else batch.mask, padding, tuple(leaves.values()))
            look.through(objective, seen, totals)
        except _Found as found:
            return found.broken
    return None


class _Found(Exception):
    def __init__(self, broken: Broken) -> None:
        super().__init__(str(broken))
        self.broken = broken


@dataclass(frozen=True)
class _Numbers(Answers):
    """Answers that are looked at where `where` [N, T] is true.

    Raises:
        _Found: one is not finite there.
    """

    where: Tensor
    padding: bool
    leaves: tuple[Tensor, ...]

    def through(self, objective: Objective, batch: Batch, totals: Totals) -> None:
        """All of them, in their order."""
        # What phase one leaves behind the end of a response is read by nobody, or by a part that is asked below.
        if not self.padding:
            self._phase_one(objective, batch)
        with torch.enable_grad():
            objective.phase_two(self).loss(batch, totals, ())

    def _phase_one(self, objective: Objective, batch: Batch) -> None:
        zero = torch.zeros_like(batch.rollouts.reward)
        for part in objective.shaping:
            x = super().tensor("shaping", part, zero, batch.rollouts)
            self._look(f"shaping {part!r}", x[:, None].expand_as(batch.mask))
        self._look(f"credit {objective.credit!r}", batch.credit.advantage)
        for part, signal in batch.credit.signals.items():
            self._look(f"signal {part!r}", signal)

    def tensor(self, slot: str, part: Any, like: Tensor, *given: Any) -> Tensor:
        x = super().tensor(slot, part, like, *given)
        self._look(f"{slot} {part!r}", x)
        return x

    def trust(self, part: Any, mask: Tensor, *given: Any) -> Trust:
        x = super().trust(part, mask, *given)
        self._look(f"surrogate {part!r}", x.value)
        # Its gradient is in the value's, or in nothing.
        self._look(f"ratio of surrogate {part!r}", x.ratio.detach())
        return x

    def coefficient(self, part: Any, mask: Tensor, *given: Any) -> Tensor | float:
        x = super().coefficient(part, mask, *given)
        self._look(f"aggregate {part!r}", torch.as_tensor(x, device=mask.device).expand_as(mask))
        return x

    def _look(self, what: str, x: Tensor) -> None:
        bad = ~torch.isfinite(x.detach()) & self.where
        if bad.any():
            row, token = bad.nonzero()[0].tolist()
            raise _Found(Broken(what, float(x[row, token]), row, token, self.padding))


class _Gradients(_Numbers):
    """The gradients of answers instead."""

    def _look(self, what: str, x: Tensor) -> None:
        if not x.requires_grad:
            return
        whole = x.where(self.where, 0.0).sum()
        for gradient in torch.autograd.grad(whole, self.leaves, retain_graph=True, allow_unused=True):
            if gradient is not None:
                super()._look(f"the gradient of {what}", gradient)
