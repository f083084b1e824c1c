"""Finds the part that makes a loss or gradient non-finite."""

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .objective import Objective
from .parts import Part
from .trajectories import join_batch
from .types import Batch, Policy, Totals, Trust

# The verdict if no single part is to blame.
SOUND = "each part's answer is finite, and their product or sum is not"


@dataclass(eq=False)
class Broken(Exception):
    """A non-finite number in `what`, a part's result; in the padding phase two multiplies it by 0, which gives NaN."""

    what: str
    value: float
    row: int
    token: int
    padding: bool

    def __str__(self) -> str:
        place = "behind the end" if self.padding else f"on token {self.token}"
        return f"{self.what} is {self.value:g} {place} of rollout {self.row}"


def broken(objective: Objective, batch: Batch, totals: Totals) -> Broken | None:
    """The first non-finite number in the parts' results: on response tokens, in their gradients, then on padding.

    None if every part's number is finite, so that only their product or sum is not. The batch, after `observe`, has a
    non-finite loss or gradient.
    """
    batch, join = join_batch(batch)
    found = _broken(objective, batch, totals)
    if found is not None and join is not None and join.here is not None and join.there is not None:
        place = int(join.here[found.row, found.token])
        found.row, found.token = divmod(min(place, join.there.numel() - 1), join.there.shape[1])
    return found


def _broken(objective: Objective, batch: Batch, totals: Totals) -> Broken | None:
    fields = {name: x.detach() for name, x in vars(batch.policy).items() if x is not None}
    for gradients, padding in ((False, False), (True, False), (False, True)):
        leaves = {name: x.clone().requires_grad_() for name, x in fields.items()}
        restricted = objective.restricted(batch.of(batch.rollouts, Policy(**leaves)))
        where = ~batch.mask if padding else batch.mask
        look = _Look(where, tuple(leaves.values()) if gradients else (), padding)
        try:
            # Only parts of phase two, which are looked at themselves, can read phase one's padding.
            if not padding:
                look.at_phase_one(objective, restricted)
            with torch.enable_grad():
                objective.called_by(functools.partial(look.call, objective)).evaluated(restricted, totals, ())
        except Broken as found:
            return found
    return None


@dataclass(frozen=True)
class _Look:
    """Raises `Broken` at a non-finite result where `where` [N, T] is true; with `leaves`, at a gradient to them."""

    where: Tensor
    leaves: tuple[Tensor, ...]
    padding: bool

    def at_phase_one(self, objective: Objective, batch: Batch) -> None:
        for part in objective.shaping:
            bonus = objective.call("shaping", part, batch.rollouts)
            self._at(f"shaping {part!r}", bonus[:, None].expand_as(batch.mask))
        self._at(f"credit {objective.credit!r}", batch.credit.advantage)
        for part, signal in batch.credit.signals.items():
            self._at(f"signal {part!r}", signal)

    def call(self, objective: Objective, slot: str, part: Part, *given: Any) -> Any:
        x = objective.call(slot, part, *given)
        if isinstance(x, Trust):
            self._at(f"surrogate {part!r}", x.value)
            # The ratio's gradient is part of the value's.
            self._at(f"ratio of surrogate {part!r}", x.ratio.detach())
        else:
            self._at(f"{slot} {part!r}", torch.as_tensor(x, device=self.where.device).expand_as(self.where))
        return x

    def _at(self, what: str, x: Tensor) -> None:
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
