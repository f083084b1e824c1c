"""Selections of tokens to keep, penalise or treat differently, and the entropy statistics that select them.

Entropies are those of the old policy (phase one) or of the current policy (over a whole optimiser step).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..ops import entropy_score, masked
from ..ranges import Share
from ..types import Batch, Rollouts
from .part import BatchSignal, Look, Part, Signal


class Selection(Part):
    """Chooses tokens of each row independently; anything about other rows must come from a signal."""

    def __call__(self, batch: Batch) -> Tensor:
        """[N, T] bool."""
        raise NotImplementedError


def selected(selection: Selection | Signal | BatchSignal, batch: Batch) -> Tensor:
    """[N, T] bool: the tokens that a selection chooses, or those where a signal is not 0."""
    chosen = selection(batch) if isinstance(selection, Selection) else batch.signal(selection)
    return chosen if chosen.dtype == torch.bool else chosen != 0


def entropy_of(*, current: bool) -> str:
    """Name of the input with the entropies of the current policy or of the old one."""
    return "entropy" if current else "old_entropy"


class HighInResponse(Selection):
    """Tokens whose entropy exceeds a quantile of their own response's.

    Args:
        quantile: in [0, 1], by nearest rank over the response's tokens.
        current: use the current policy's entropies in place of the old policy's.
    """

    quantile: Share
    current: bool = False

    @property
    def reads(self) -> set[str]:
        return {entropy_of(current=self.current)}

    def __call__(self, batch: Batch) -> Tensor:
        entropy = batch.need(entropy_of(current=self.current))
        return entropy > masked.row_quantile(entropy, batch.mask, self.quantile)


class OldEntropyScore(Signal):
    """ĥ of H_old over all tokens of the rollout batch, [N, T] in [−1, 1]; `released_sign` gives [0, 1]."""

    reads = {"old_entropy"}
    quantile: Share = 0.8
    released_sign: bool = False

    def __call__(self, rollouts: Rollouts) -> Tensor:
        return _scored(rollouts.need("old_entropy"), rollouts.mask, self.quantile, self.released_sign)


class CurrentEntropyScore(BatchSignal):
    """`OldEntropyScore` of the current entropies over one optimiser step; the authors' code takes each micro-batch."""

    reads = {"entropy"}
    quantile: Share = 0.8
    released_sign: bool = False

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        return _scored(batch.need("entropy"), batch.mask, self.quantile, self.released_sign)


class OldEntropyQuantile(Signal):
    """Nearest-rank quantile of H_old over all n tokens of the rollout batch; the same number at every token [N, T].

    Args:
        counted: take the ⌈(1 − quantile) n⌉-th largest entropy instead, so that this many tokens reach it.
    """

    reads = {"old_entropy"}
    quantile: Share
    counted: bool = False

    def __call__(self, rollouts: Rollouts) -> Tensor:
        values = rollouts.need("old_entropy")[rollouts.mask]
        return _threshold(values, self.quantile, self.counted).expand(rollouts.mask.shape)


class CurrentEntropyQuantile(BatchSignal):
    """`OldEntropyQuantile` of the current entropies over one optimiser step."""

    reads = {"entropy"}
    quantile: Share
    counted: bool = False

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        values = batch.need("entropy")[batch.mask]
        return _threshold(values, self.quantile, self.counted).expand(batch.mask.shape)


class HighInBatch(Selection):
    """Tokens whose entropy is at least a quantile over the whole batch."""

    threshold: OldEntropyQuantile | CurrentEntropyQuantile

    def __call__(self, batch: Batch) -> Tensor:
        entropy = batch.need(entropy_of(current=isinstance(self.threshold, CurrentEntropyQuantile)))
        return entropy >= batch.signal(self.threshold)


def _threshold(values: Tensor, quantile: float, counted: bool) -> Tensor:
    if not counted:
        return masked.quantile(values, quantile)
    # 1e-4: the rounding of the product must not add a token.
    return masked.smallest(values, len(values) - max(1, math.ceil((1 - quantile) * len(values) - 1e-4)))


def _scored(entropy: Tensor, mask: Tensor, quantile: float, released_sign: bool) -> Tensor:
    scale = entropy_score.measure(entropy, mask, quantile)
    return entropy_score.score(entropy, scale, negative_is_positive=released_sign)
