"""Phase two of an objective: its parts in order give the loss of each token."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from ..base.errors import choose
from .parts import Aggregate, Penalty, Selection, SurrogateStage, Weight
from .protocol import Answers
from .types import Batch, Loss, Totals, Trust


@dataclass(frozen=True)
class PhaseTwo:
    """The slots of an objective that make its loss; `answers` calls them."""

    answers: Answers
    surrogate: SurrogateStage
    weights: tuple[Weight, ...]
    penalties: tuple[Penalty, ...]
    aggregate: Aggregate
    only: Selection | None

    def loss(self, batch: Batch, totals: Totals, names: Collection[str] | None) -> Loss:
        """The loss of some rows, with the terms of these names; None keeps all.

        Raises:
            UnknownName: no such term.
        """
        trust = self.trust(batch)
        weight, penalty = self._weight(batch, trust), self._penalty(batch, trust)
        surrogate = trust.value if weight is None else weight * trust.value
        token = -surrogate if penalty is None else penalty - surrogate
        coefficient = self._coefficient(batch, totals, token.dtype)
        # On padding the coefficient is 0, the others anything.
        terms: dict[str, Tensor | float] = {
            "advantage": batch.credit.advantage,
            "ratio": trust.ratio,
            "low": trust.lower,
            "high": trust.upper,
            "clipped": trust.clipped,
            "weight": 1.0 if weight is None else weight,
            "surrogate": trust.value,
            "penalty": 0.0 if penalty is None else penalty,
            "coefficient": coefficient,
            "loss": token,
        }
        kept = terms if names is None else {name: choose("loss: term", name, terms) for name in names}
        return Loss((token * coefficient).sum(), {name: _term(x, token) for name, x in kept.items()})

    def trust(self, batch: Batch) -> Trust:
        """The surrogate of some rows."""
        return self.answers.trust(self.surrogate, batch.mask, batch)

    @torch.no_grad()
    def _weight(self, batch: Batch, trust: Trust) -> Tensor | None:
        product = None
        for stage in self.weights:
            factor = self.answers.tensor("weight", stage, batch.mask, batch, trust)
            product = factor if product is None else product * factor
        return product

    def _penalty(self, batch: Batch, trust: Trust) -> Tensor | None:
        total = None
        for stage in self.penalties:
            term = self.answers.tensor("penalty", stage, batch.mask, batch, trust)
            total = term if total is None else total + term
        return total

    def _coefficient(self, batch: Batch, totals: Totals, dtype: torch.dtype) -> Tensor:
        mask = batch.mask
        share = () if self.aggregate.share is None else (batch.signal(self.aggregate.share),)
        coefficient = self.answers.coefficient(self.aggregate, mask, mask, totals, *share)
        if self.only is not None:
            mask = mask & self.answers.tensor("selection", self.only, mask, batch)
        # A tensor takes the loss's precision before the product, not after it.
        coefficient = coefficient.to(dtype) if isinstance(coefficient, Tensor) else coefficient
        return coefficient * mask.to(dtype)


def _term(value: Tensor | float, like: Tensor) -> Tensor:
    """[N, T] detached."""
    value = value.detach() if isinstance(value, Tensor) else like.new_full((), value)
    return value if value.shape == like.shape else value.expand_as(like)
