"""Rollout IS: the policy gradient, weighted by the ratio to the sampler and without tokens whose ratio is extreme.

    q_it = exp(lp_it − lp_roll,it)
    J = 1/Σ|o_i| Σ_i Σ_t sg[q_it · 1(1 − low < q_it < 1 + high)] · A_i · lp_it

One ratio corrects both for the engine that sampled and for the updates since. A token outside the bounds has no
gradient, whatever the sign of its advantage; CISPO keeps a bounded one there.
Defaults: 0.2 and 0.2, the clip of SkyRL's PPO.
Departures: the advantage is GRPO's; SkyRL sets the advantage apart from the loss. The log-ratio is bounded to ±20.
Reductions: unbounded, it has the gradient of q A: DPPO without its region and cap.
"""

import math
from typing import Annotated

from torch import Tensor

from ..core.objective import Objective
from ..core.parts import DetachedClip, FixedBounds, GroupAdvantage, Region, RolloutRatio, TokenMean
from ..core.ranges import Limit, Share
from ..core.types import Batch
from .paper import Paper


class Between(Region):
    """Tokens whose ratio to the sampler lies strictly inside (1 − low, 1 + high)."""

    low: Share
    high: Limit

    def __call__(self, batch: Batch) -> Tensor:
        ratio = RolloutRatio()(batch).detach()
        return (ratio > 1 - self.low) & (ratio < 1 + self.high)


@Paper(
    "GLM-5 (SkyRL's rollout_is)",
    "2602.15763",
    "code",
    "the paper's equation was not read: a framework's loss",
    code="NovaSky-AI/SkyRL@a956457:skyrl/backends/skyrl_train/utils/ppo_utils.py",
)
def rollout_is(
    *,
    low: Annotated[Share, "bound below, ratio > 1 − low"] = 0.2,
    high: Annotated[Limit, "bound above, ratio < 1 + high"] = 0.2,
) -> Objective:
    """Weighs tokens by the ratio to the sampler's probability and drops those whose ratio lies outside the bounds."""
    surrogate = DetachedClip(FixedBounds(1.0, math.inf), RolloutRatio(), Between(low, high))
    return Objective(GroupAdvantage(), surrogate, TokenMean())
