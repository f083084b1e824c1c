"""GMPO: the geometric mean of a response's token ratios, each clipped on the side to which its advantage pushes it.

    x̃_it = min(lr_it, high) where A_it ≥ 0, max(lr_it, −low) where A_it < 0,   lr = lp − lp_old
    s_i = exp(mean_t x̃_it)
    J = 1/N Σ_i 1/|o_i| Σ_t s_i A_it

Defaults: low = high = 0.4, bounds of the *log*-ratio (ratios 0.67 and 1.49).
Departures: the authors' code adds 1e-8 to the deviation of the rewards, here 1e-6. Log-ratios are bounded to ±20 first.
With token advantages the value is s_i times their mean.
Reductions: with responses of one token it is GRPO with the clip e^−0.4, e^0.4; unclipped it is GSPO's sequence ratio.
"""

import math
from typing import Annotated

import torch

from ..core.objective import Objective
from ..core.ops import ratio
from ..core.parts import GroupAdvantage, Ratio, SequenceMean, SurrogateStage
from ..core.ranges import Limit
from ..core.types import Batch, Trust
from .paper import Paper


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


@Paper("Geometric-Mean Policy Optimization", "2507.20673", "code", code="callsys/GMPO@205b2bf:train_zero_math_gmpo.py")
def gmpo(
    *,
    low: Annotated[Limit, "clip of the log-ratio below, where the advantage is negative"] = 0.4,
    high: Annotated[Limit, "clip of the log-ratio above, where it is positive"] = 0.4,
) -> Objective:
    """One ratio for the response: the geometric mean of its clipped token ratios."""
    return Objective(GroupAdvantage(), GeometricMean(low, high), SequenceMean())
