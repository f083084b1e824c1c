"""Rollout correction: the engine that samples and the one that trains give the same token different probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch

from ..ops.ratio import log_product, log_ratio
from ..ranges import Share, at_least
from .weights import BatchWeight

if TYPE_CHECKING:
    from torch import Tensor

    from ..types import Batch


@dataclass(frozen=True)
class RolloutCorrection(BatchWeight):
    """ρ = exp(lp_old − lp_roll), the importance weight of the sampling engine, kept in bounds; without gradient.

    A factor on the surrogate, known before the first update, that goes with any method. Where the old log-probs are the
    sampler's own, ρ is 1.

    Args:
        sequence: one weight for a response, ρ_i = Π_t ρ_it, rather than one for each token.
        mask: set a weight outside [floor, cap] to 0 instead of clamping it.
        cap: largest weight, ≥ 1.
        floor: smallest weight, in [0, 1].
    """

    reads = {"rollout_logprob"}
    corrects_rollout = True
    sequence: bool = False
    mask: bool = False
    cap: Annotated[float, at_least(1)] = 2.0
    floor: Share = 0.0

    def of_batch(self, batch: Batch) -> Tensor:
        log = log_ratio(batch.rollouts.old_logprob, batch.need("rollout_logprob"))
        if self.sequence:
            log = log_product(log, batch.mask)
        weight = log.exp()
        bounded = weight.clamp(self.floor, self.cap)
        return torch.where(bounded == weight, weight, 0.0) if self.mask else bounded
