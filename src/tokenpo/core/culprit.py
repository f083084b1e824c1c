"""Finds the part that makes a loss or gradient non-finite."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .objective import Objective
from .protocol import Answers
from .types import Batch, Policy, Totals, Trust

# The verdict if no single part is to blame.
SOUND = "each part's answer is finite, and their product or sum is not"


@dataclass(eq=False)
class Broken(Exception):
    """A non-finite number; raised to end the search.

    Args:
        what: slot and part, or one of the part's tensors.
        row: its row in the batch.
        token: its place in the response.
        padding: it is in the padding, where phase two multiplies it by 0, which gives NaN.
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
    """The first non-finite number in the parts' results, in the order of evaluation.

    Searches the results on response tokens, then their gradients to the policy's fields, then the results on padding.

    Args:
        batch: rows with a non-finite loss or gradient, after `observe`.
        totals: denominators of the optimiser step.

    Returns:
        None if every part's number is finite, so that only their product or sum is not.
    """
    fields = {name: x.detach() for name, x in vars(batch.policy).items() if x is not None}
    for gradients, padding in ((False, False), (True, False), (False, True)):
        leaves = {name: x.clone().requires_grad_() for name, x in fields.items()}
        restricted = objective.restricted(batch.of(batch.rollouts, Policy(**leaves)))
        where = ~batch.mask if padding else batch.mask
        probe = _Probe(objective.name, where, tuple(leaves.values()) if gradients else (), padding)
        try:
            # Only parts of phase two, which are probed themselves, can read phase one's padding.
            if not padding:
                probe.phase_one(objective, restricted)
            with torch.enable_grad():
                objective.evaluated(restricted, totals, (), probe)
        except Broken as found:
            return found
    return None


@dataclass(frozen=True)
class _Probe(Answers):
    """Raises `Broken` at a non-finite result where `where` [N, T] is true; with `leaves`, at a gradient to them."""

    where: Tensor
    leaves: tuple[Tensor, ...]
    padding: bool

    def phase_one(self, objective: Objective, batch: Batch) -> None:
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
        # The ratio's gradient is part of the value's.
        self._look(f"ratio of surrogate {part!r}", x.ratio.detach())
        return x

    def coefficient(self, part: Any, mask: Tensor, *given: Any) -> Tensor | float:
        x = super().coefficient(part, mask, *given)
        self._look(f"aggregate {part!r}", torch.as_tensor(x, device=mask.device).expand_as(mask))
        return x

    def _look(self, what: str, x: Tensor) -> None:
        if not self.leaves:
            self._require_finite(what, x.detach())
        elif x.requires_grad:
            whole = x.where(self.where, 0.0).sum()
            for gradient in torch.autograd.grad(whole, self.leaves, retain_graph=True, allow_unused=True):
                if gradient is not None:
                    self._require_finite(f"the gradient of {what}", gradient)

    def _require_finite(self, what: str, x: Tensor) -> None:
        bad = ~torch.isfinite(x) & self.where
        if bad.any():
            row, token = bad.nonzero()[0].tolist()
            raise Broken(what, float(x[row, token]), row, token, self.padding)
