"""GMPO: the geometric mean of a response's token ratios, each clipped on the side that its advantage pushes.

Paper: Geometric-Mean Policy Optimization (2507.20673); provenance: code.

    x̃_it = min(lr_it, high) where A_it ≥ 0, max(lr_it, −low) where A_it < 0,   lr = lp − lp_old
    s_i = exp(mean_t x̃_it)
    J = 1/N Σ_i 1/|o_i| Σ_t s_i A_it

Defaults: low = high = 0.4, bounds of the *log*-ratio (ratios 0.67 and 1.49).
Departures: log-ratios are bounded to ±20 first. With token advantages the value is s_i times their mean.
Reductions: with responses of one token it is GRPO with the clip e^−0.4, e^0.4; unclipped it is GSPO's sequence ratio.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ..core.objective import Objective
from ..core.ops import ratio
from ..core.parts import GroupAdvantage, Ratio, SequenceMean, SurrogateStage
from ..core.ranges import Limit
from ..core.types import Batch, Trust
from .paper import Paper, published

PAPER = Paper("Geometric-Mean Policy Optimization", "2507.20673", "", "code")


@dataclass(frozen=True)
class GeometricMean(SurrogateStage):
    """s_i A with token log-ratios clipped to [−low, high] on the side of the advantage before they are averaged."""

    own_slope = True
    low: Limit
    high: Limit

    def __call__(self, batch: Batch) -> Trust:
        advantage, x = batch.credit.advantage, Ratio.log(batch)
        kept = torch.where(advantage < 0, x.clamp(min=-self.low), x.clamp(max=self.high))
        mean = ratio.geometric(kept, batch.mask)
        clipped = (kept.detach() != x.detach()) & (advantage != 0)
        return Trust(mean * advantage, mean, math.exp(-self.low), math.exp(min(self.high, ratio.BOUND)), clipped)


@published(PAPER)
def gmpo(*, low: Limit = 0.4, high: Limit = 0.4) -> Objective:
    """One ratio for the response: the geometric mean of its clipped token ratios.

    Args:
        low: clip of the log-ratio below, where the advantage is negative.
        high: clip of the log-ratio above, where it is positive.
    """
    return Objective(
        name="gmpo",
        credit=GroupAdvantage(),
        surrogate=GeometricMean(low, high),
        aggregate=SequenceMean(),
    )
