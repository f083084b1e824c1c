"""Weights: factors on a token's surrogate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import TokenPOError
from ..ops import masked
from ..signals import BatchSignal, Part, Signal
from .base import Weight

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ..types import Batch, Rollouts, Trust


@dataclass(frozen=True)
class Sigmoid(Part):
    """clip(alpha · sigmoid(tau (p − mu)), low, high) of a probability."""

    alpha: float
    tau: float
    mu: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high < math.inf:
            raise TokenPOError(f"probability weight: bounds need 0 <= low <= high, got {self.low} and {self.high}")

    def __call__(self, probability: Tensor) -> Tensor:
        return (self.alpha * (self.tau * (probability - self.mu)).sigmoid()).clamp(self.low, self.high)


@dataclass(frozen=True)
class Affine(Part):
    """a · p + 1 − a of a probability."""

    a: float

    def __post_init__(self) -> None:
        if not 0 <= self.a <= 1:
            raise TokenPOError(f"probability weight: a = {self.a} must lie in [0, 1]")

    def __call__(self, probability: Tensor) -> Tensor:
        return self.a * probability + (1 - self.a)


@dataclass(frozen=True)
class ProbabilityWeight(Weight):
    """A curve of the sampled token's probability p = exp(lp), detached.

    Args:
        curve: what to make of p.
        old: take p from the old policy (fixed in phase one) rather than from the current one.
    """

    curve: Sigmoid | Affine
    old: bool = False

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return self.of_batch(batch)

    def of_batch(self, batch: Batch) -> Tensor:
        logprob = batch.rollouts.old_logprob if self.old else batch.policy.logprob
        return self.curve(logprob.detach().exp())


@dataclass(frozen=True)
class CurrentMean(BatchSignal):
    """Mean weight over the response tokens of one optimiser step, shown at every token [N, T]."""

    weight: ProbabilityWeight

    def __call__(self, batch: Batch, trust: Callable[[], Trust], generator: torch.Generator | None) -> Tensor:
        return masked.mean(self.weight.of_batch(batch), batch.mask).expand(batch.mask.shape)


@dataclass(frozen=True)
class OldMean(Signal):
    """The same for a weight of the old policy: known in phase one, over the rollout batch."""

    weight: ProbabilityWeight

    def __call__(self, rollouts: Rollouts) -> Tensor:
        weight = self.weight.curve(rollouts.old_logprob.exp())
        return masked.mean(weight, rollouts.mask).expand(rollouts.mask.shape)


@dataclass(frozen=True)
class NormalisedWeight(Weight):
    """A weight divided by its mean, so that learning rates compare between methods."""

    weight: ProbabilityWeight
    mean: CurrentMean | OldMean

    @staticmethod
    def of(weight: ProbabilityWeight) -> NormalisedWeight:
        return NormalisedWeight(weight, OldMean(weight) if weight.old else CurrentMean(weight))

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return self.of_batch(batch)

    def of_batch(self, batch: Batch) -> Tensor:
        return self.weight.of_batch(batch) / batch.signal(self.mean)
