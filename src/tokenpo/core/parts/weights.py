"""Weights: factors on a token's surrogate."""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops import masked
from ..ranges import Finite, NotNegative, Share, at_least
from ..types import Batch, Trust
from .part import BatchSignal, Look, MemorySignal, Part, Selection, Signal, Weight


class Sigmoid(Part):
    """clip(alpha · sigmoid(tau (p − mu)), lower, upper) of a probability p.

    Args:
        outside: subtract mu outside the sigmoid: clip(alpha · (sigmoid(tau p) − mu), lower, upper).
    """

    alpha: NotNegative
    tau: Finite
    mu: Finite
    lower: NotNegative
    upper: NotNegative
    outside: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(upper=at_least(self.lower).because("the smallest weight"))

    def __call__(self, probability: Tensor) -> Tensor:
        if self.outside:
            curve = (self.tau * probability).sigmoid() - self.mu
        else:
            curve = (self.tau * (probability - self.mu)).sigmoid()
        return (self.alpha * curve).clamp(self.lower, self.upper)


class Affine(Part):
    """a · p + 1 − a of a probability p."""

    a: Share

    def __call__(self, probability: Tensor) -> Tensor:
        return self.a * probability + (1 - self.a)


class BatchWeight(Weight):
    """A weight that does not depend on the surrogate, so that ratios, penalties and signals can use it too."""

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return self.of_batch(batch)

    def of_batch(self, batch: Batch) -> Tensor:
        """[N, T] ≥ 0, without gradient."""
        raise NotImplementedError


class ProbabilityWeight(BatchWeight):
    """A curve of the sampled token's probability p = exp(lp), detached.

    Args:
        curve: the weight as a function of p.
        old: take p from the old policy, the same in every update, rather than from the current one.
    """

    curve: Sigmoid | Affine
    old: bool = False

    def of_batch(self, batch: Batch) -> Tensor:
        logprob = batch.rollouts.old_logprob if self.old else batch.policy.logprob
        return self.curve(logprob.detach().exp())


class CurrentMean(BatchSignal):
    """Mean weight over the response tokens of one optimiser step; the same number at every token [N, T]."""

    weight: BatchWeight

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        return masked.mean(self.weight.of_batch(batch), batch.mask).expand(batch.mask.shape)


class NormalisedWeight(BatchWeight):
    """A weight divided by its mean over tokens. With weights 0 and 1, the loss becomes a mean over the kept tokens.

    Args:
        mean: a signal that holds the mean at every token, over the optimiser step or over the rollout batch.
    """

    weight: BatchWeight
    mean: Signal | BatchSignal

    @staticmethod
    def of(weight: BatchWeight) -> NormalisedWeight:
        return NormalisedWeight(weight, CurrentMean(weight))

    def of_batch(self, batch: Batch) -> Tensor:
        return _over_mean(self.weight.of_batch(batch), batch.signal(self.mean))


class RowNormalised(BatchWeight):
    """A weight divided by its mean over the response. With weights 0 and 1, that is a mean over the kept tokens."""

    of_response = True
    weight: BatchWeight

    def of_batch(self, batch: Batch) -> Tensor:
        weight = self.weight.of_batch(batch)
        return _over_mean(weight, masked.mean(weight, batch.mask, dim=1))


class SignalWeight(BatchWeight):
    """A signal ≥ 0 as the weight."""

    signal: Signal | BatchSignal | MemorySignal

    def of_batch(self, batch: Batch) -> Tensor:
        return batch.signal(self.signal)


class Keep(BatchWeight):
    """1 where tokens are selected, 0 elsewhere; the denominator still counts all."""

    selection: Selection | Signal | BatchSignal

    def of_batch(self, batch: Batch) -> Tensor:
        return selected(self.selection, batch).to(batch.policy.logprob.dtype)


class Drop(BatchWeight):
    """0 where tokens are selected, 1 elsewhere; the denominator still counts all."""

    selection: Selection | Signal | BatchSignal

    def of_batch(self, batch: Batch) -> Tensor:
        return (~selected(self.selection, batch)).to(batch.policy.logprob.dtype)


def _over_mean(weight: Tensor, mean: Tensor) -> Tensor:
    """weight / mean, 0 where the mean is 0."""
    return torch.where(mean > 0, weight / mean, 0.0)


def selected(selection: Selection | Signal | BatchSignal, batch: Batch) -> Tensor:
    """[N, T] bool: the tokens that a selection chooses, or those where a signal is not 0."""
    chosen = selection(batch) if isinstance(selection, Selection) else batch.signal(selection)
    return chosen if chosen.dtype == torch.bool else chosen != 0
