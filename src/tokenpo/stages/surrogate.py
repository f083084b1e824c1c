"""Surrogates: a ratio inside a trust region."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import TokenPOError
from ..ops import clip
from ..signals import Part
from ..types import Trust
from .base import SurrogateStage
from .ratio import Ratio, TokenRatio

if TYPE_CHECKING:
    from torch import Tensor

    from ..types import Batch


class Bounds(Part):
    """The interval in which a ratio may move."""

    def __call__(self, batch: Batch) -> tuple[Tensor | float, Tensor | float]:
        """(lower, upper), each a number or [N, T], around 1."""
        raise NotImplementedError


@dataclass(frozen=True)
class FixedBounds(Bounds):
    """(1 − low, 1 + high)."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (0 <= self.low <= 1 and self.high >= 0):
            raise TokenPOError(f"clip bounds need 0 <= low <= 1 and high >= 0, got low={self.low}, high={self.high}")

    def __call__(self, batch: Batch) -> tuple[float, float]:
        return 1 - self.low, 1 + self.high


@dataclass(frozen=True)
class Clip(SurrogateStage):
    """min(r A, clip(r, bounds) A), and at least `dual` · A where A < 0 (dual clip, off with None)."""

    bounds: Bounds
    ratio: Ratio = TokenRatio()
    dual: float | None = None

    def __post_init__(self) -> None:
        if self.dual is not None and not self.dual > 1:
            raise TokenPOError(f"dual clip must exceed 1, got {self.dual}")

    def __call__(self, batch: Batch) -> Trust:
        ratio = self.ratio(batch)
        lower, upper = self.bounds(batch)
        advantage = batch.credit.advantage
        used = clip.pessimistic(ratio, advantage, lower, upper, self.dual)
        clipped = (used.detach() != ratio.detach()) & (advantage != 0)
        return Trust(used * advantage, ratio, lower, upper, clipped)


@dataclass(frozen=True)
class Unclipped(SurrogateStage):
    """r A, no trust region."""

    ratio: Ratio = TokenRatio()

    def __call__(self, batch: Batch) -> Trust:
        ratio = self.ratio(batch)
        nowhere = ratio.new_zeros((), dtype=batch.mask.dtype).expand_as(batch.mask)
        return Trust(ratio * batch.credit.advantage, ratio, 0.0, math.inf, nowhere)
