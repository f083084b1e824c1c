"""Selections of tokens, to keep, penalise or treat differently, and statistics of the entropy to choose them by.

The entropy is that of the old policy (phase one) or of the current one (whole step).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..ops import entropy_score, ranked
from ..ranges import Share
from ..types import Batch, Rollouts
from .part import BatchSignal, Look, Part, Signal


class Selection(Part):
    """Chooses tokens, each row by itself; it reads other rows through signals."""

    def __call__(self, batch: Batch) -> Tensor:
        """[N, T] bool."""
        raise NotImplementedError


def selected(selection: Selection | Signal | BatchSignal, batch: Batch) -> Tensor:
    """[N, T] bool: the tokens of a selection, or those at which a signal is not 0."""
    chosen = selection(batch) if isinstance(selection, Selection) else batch.signal(selection)
    return chosen if chosen.dtype == torch.bool else chosen != 0


def entropy_of(*, current: bool) -> str:
    """The input that holds the entropies of the current policy, or of the old one."""
    return "entropy" if current else "old_entropy"


class HighInResponse(Selection):
    """Tokens whose entropy exceeds a quantile of their own response's.

    Args:
        quantile: nearest rank, over the response's tokens, in [0, 1].
        current: of the current policy's entropies, not the old one's.
    """

    quantile: Share
    current: bool = False

    @property
    def reads(self) -> set[str]:
        return {entropy_of(current=self.current)}

    def __call__(self, batch: Batch) -> Tensor:
        entropy = batch.need(entropy_of(current=self.current))
        return entropy > ranked.row_quantile(entropy, batch.mask, self.quantile)


class OldEntropyScore(Signal):
    """ĥ of H_old over all tokens of the rollout batch, [N, T] in [−1, 1]; `released_sign` gives [0, 1]."""

    reads = {"old_entropy"}
    quantile: Share = 0.8
    released_sign: bool = False

    def __call__(self, rollouts: Rollouts) -> Tensor:
        return _scored(rollouts.need("old_entropy"), rollouts.mask, self.quantile, self.released_sign)


class CurrentEntropyScore(BatchSignal):
    """The same of the current entropies over one optimiser step, as the authors' code computes it per micro-batch."""

    reads = {"entropy"}
    quantile: Share = 0.8
    released_sign: bool = False

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        return _scored(batch.need("entropy"), batch.mask, self.quantile, self.released_sign)


class OldEntropyQuantile(Signal):
    """Nearest-rank quantile of H_old over all n tokens of the rollout batch, shown at every token [N, T], nats.

    Args:
        counted: the ⌈(1 − quantile) n⌉-th largest instead, which so many tokens reach.
    """

    reads = {"old_entropy"}
    quantile: Share
    counted: bool = False

    def __call__(self, rollouts: Rollouts) -> Tensor:
        values = rollouts.need("old_entropy")[rollouts.mask]
        return _threshold(values, self.quantile, self.counted).expand(rollouts.mask.shape)


class CurrentEntropyQuantile(BatchSignal):
    """The same of the current entropies over one optimiser step."""

    reads = {"entropy"}
    quantile: Share
    counted: bool = False

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        values = batch.need("entropy")[batch.mask]
        return _threshold(values, self.quantile, self.counted).expand(batch.mask.shape)


class HighInBatch(Selection):
    """Tokens whose entropy reaches a quantile of the whole batch's; equal ones are in."""

    threshold: OldEntropyQuantile | CurrentEntropyQuantile

    def __call__(self, batch: Batch) -> Tensor:
        entropy = batch.need(entropy_of(current=isinstance(self.threshold, CurrentEntropyQuantile)))
        return entropy >= batch.signal(self.threshold)


def _threshold(values: Tensor, quantile: float, counted: bool) -> Tensor:
    if not counted:
        return ranked.quantile(values, quantile)
    # 1e-4: rounding of the product is no token.
    return ranked.smallest(values, len(values) - max(1, math.ceil((1 - quantile) * len(values) - 1e-4)))


def _scored(entropy: Tensor, mask: Tensor, quantile: float, released_sign: bool) -> Tensor:
    scale = entropy_score.measure(entropy, mask, quantile)
    return entropy_score.score(entropy, scale, negative_is_positive=released_sign)
