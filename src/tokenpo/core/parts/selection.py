"""Selections: which tokens a weight keeps, a penalty holds, or a trust region treats differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ..ops import ranked
from ..ranges import SHARE, require
from .entropy import CurrentEntropyQuantile, OldEntropyQuantile
from .part import BatchSignal, Part, Signal

if TYPE_CHECKING:
    from torch import Tensor

    from ..types import Batch


class Selection(Part):
    """Chooses tokens, each row by itself; what depends on other rows comes in as a signal."""

    def __call__(self, batch: Batch) -> Tensor:
        """[N, T] bool."""
        raise NotImplementedError


def selected(selection: Selection | Signal | BatchSignal, batch: Batch) -> Tensor:
    """[N, T] bool: the tokens of a selection, or those at which a signal is not 0."""
    chosen = selection(batch) if isinstance(selection, Selection) else batch.signal(selection)
    return chosen if chosen.dtype == torch.bool else chosen != 0


def entropies(batch: Batch, *, current: bool) -> Tensor:
    """[N, T] nats of the current policy, or of the old one; a part that reads them declares the need."""
    entropy = batch.policy.entropy if current else batch.rollouts.old_entropy
    assert entropy is not None  # declared in `needs`, checked by the objective
    return entropy


@dataclass(frozen=True)
class HighInResponse(Selection):
    """Tokens whose entropy exceeds a quantile of their own response's.

    Args:
        quantile: nearest rank, over the response's tokens, in [0, 1].
        current: take the current policy's entropies rather than the old one's.
    """

    quantile: float
    current: bool = False

    def __post_init__(self) -> None:
        require(self, quantile=SHARE)

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"entropy" if self.current else "old_entropy"})

    def __call__(self, batch: Batch) -> Tensor:
        entropy = entropies(batch, current=self.current)
        return entropy > ranked.row_quantile(entropy, batch.mask, self.quantile)


@dataclass(frozen=True)
class HighInBatch(Selection):
    """Tokens whose entropy reaches a quantile of the whole batch's; equal ones are in."""

    threshold: OldEntropyQuantile | CurrentEntropyQuantile

    @property
    def needs(self) -> frozenset[str]:
        return self.threshold.needs

    def __call__(self, batch: Batch) -> Tensor:
        current = isinstance(self.threshold, CurrentEntropyQuantile)
        return entropies(batch, current=current) >= batch.signal(self.threshold)
