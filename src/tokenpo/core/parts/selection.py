"""Selections of tokens: to keep, to penalise, or to treat differently in a trust region."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..ops import ranked
from ..ranges import Share
from ..types import Batch
from .entropy import CurrentEntropyQuantile, OldEntropyQuantile
from .part import BatchSignal, Part, Signal


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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class HighInBatch(Selection):
    """Tokens whose entropy reaches a quantile of the whole batch's; equal ones are in."""

    threshold: OldEntropyQuantile | CurrentEntropyQuantile

    def __call__(self, batch: Batch) -> Tensor:
        entropy = batch.need(entropy_of(current=isinstance(self.threshold, CurrentEntropyQuantile)))
        return entropy >= batch.signal(self.threshold)
