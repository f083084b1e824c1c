"""Phase two of an objective: its parts asked in their order for the loss of each token."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from .ops import masked
from .parts import Aggregate, Penalty, Selection, SurrogateStage, Weight
from .protocol import Answers
from .terms import terms_of
from .types import Batch, Loss, Totals, Trust


@dataclass(frozen=True)
class PhaseTwo:
    """The slots of an objective that make its loss, on any rows of an optimiser step.

    Args:
        answers: asks them.
    """

    answers: Answers
    surrogate: SurrogateStage
    weights: tuple[Weight, ...]
    penalties: tuple[Penalty, ...]
    aggregate: Aggregate
    only: Selection | None

    def loss(self, batch: Batch, totals: Totals, names: Collection[str] | None) -> Loss:
        """The sum over the tokens, and the terms of these names; None keeps all."""
        token, coefficient, terms = self._tokens(batch, totals, names)
        return Loss((token * coefficient).sum(), terms)

    def trust(self, batch: Batch) -> Trust:
        """The surrogate's answer."""
        return self.answers.trust(self.surrogate, batch.mask, batch)

    def _tokens(
        self, batch: Batch, totals: Totals, names: Collection[str] | None
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The loss of each token, its coefficient in the sum, and of the rest what is to be kept."""
        trust = self.trust(batch)
        weight = self._weight(batch, trust)
        surrogate = trust.value if weight is None else weight * trust.value
        penalty = self._penalty(batch, trust)
        token = -surrogate if penalty is None else penalty - surrogate
        coefficient = self._coefficient(batch, totals, token.dtype)
        return token, coefficient, terms_of(batch, trust, weight, penalty, coefficient, token, names)

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
        coefficient = self.answers.coefficient(self.aggregate, mask, mask, totals)
        if self.only is not None:
            mask = mask & self.answers.tensor("selection", self.only, mask, batch)
        # In the loss's precision before the product, not after; a number is taken to it by the product.
        coefficient = coefficient.to(dtype) if isinstance(coefficient, Tensor) else coefficient
        return masked.ones(mask, dtype).mul_(coefficient)
