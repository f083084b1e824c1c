"""Aggregates: from token losses to one number. Denominators come from outside, so rows add up in any split."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..ranges import Positive
from ..types import Totals
from .protocols import Aggregate


@dataclass(frozen=True)
class TokenMean(Aggregate):
    """Every token counts alike: 1 / tokens of the step. DAPO."""

    def __call__(self, mask: Tensor, totals: Totals) -> float:
        return 1.0 / max(totals.tokens, 1)  # 0 where everything was rejected


@dataclass(frozen=True)
class SequenceMean(Aggregate):
    """Every response counts alike, and every token inside it: 1 / (|o_i| · sequences of the step). GRPO."""

    def __call__(self, mask: Tensor, totals: Totals) -> Tensor:
        length = mask.sum(1, keepdim=True).clamp(min=1)
        return 1.0 / (length.double() * max(totals.sequences, 1))


@dataclass(frozen=True)
class ConstantLength(Aggregate):
    """1 / (length · sequences): no response is favoured for its length. Dr. GRPO.

    Args:
        length: the constant, tokens, > 0; None takes the step's `Totals.length`.
    """

    length: Positive | None = None

    def __call__(self, mask: Tensor, totals: Totals) -> float:
        return 1.0 / ((totals.length if self.length is None else self.length) * max(totals.sequences, 1))
