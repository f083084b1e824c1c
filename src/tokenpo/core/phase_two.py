"""Phase two of an objective: its parts asked in their order for the loss of each token."""

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
        return token, coefficient, _terms(batch, trust, weight, penalty, coefficient, token, names)

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
        return coefficient * mask.to(dtype)


def _terms(
    batch: Batch,
    trust: Trust,
    weight: Tensor | None,
    penalty: Tensor | None,
    coefficient: Tensor,
    token: Tensor,
    names: Collection[str] | None,
) -> dict[str, Tensor]:
    """Detached tensors [N, T] by name, as the stages made them; on padding the coefficient is 0, the others anything.

    Args:
        weight: product of the weights; None is 1.
        penalty: sum of the penalties; None is 0.
        coefficient: of each token's loss in the sum.
        token: each token's loss.
        names: the terms to keep; None keeps all.

    Raises:
        UnknownName: no such term.
    """
    found: dict[str, Tensor | float] = {
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
    kept = found if names is None else {name: choose("loss: term", name, found) for name in names}
    return {name: _shown(x, token) for name, x in kept.items()}


def _shown(value: Tensor | float, like: Tensor) -> Tensor:
    value = value.detach() if isinstance(value, Tensor) else like.new_full((), value)
    return value if value.shape == like.shape else value.expand_as(like)
