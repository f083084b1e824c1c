"""GRPO on pass@k: only a response that is alone at the top of its group learns.

    R_(1) ≥ R_(2) ≥ ...   the rewards of the group, sorted
    A_i = (R_(1) − R_(2)) / (std_g R + eps) for the response that holds R_(1), 0 for all others
    J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

The group is worth its best response, max_j R_j; response i adds R_(1) − R_(2) to that if it is alone at the top.
Defaults: the division by the deviation and eps 1e-6 are a framework's; the derivation has no division: std=False. Clip
0.2/0.2, no dual clip and the token mean are the framework's usual loss.
Departures: k is the size of the group. A group of one has advantage 0; the framework refuses it.
Reductions: with two responses and std=False it is RLOO's positive half: the better one gets R_(1) − R_(2), the other 0.
"""

from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.parts import Clip, CreditStage, FixedBounds, TokenMean
from ..core.ranges import NotNegative
from ..core.types import Rollouts
from .options import High, Low
from .paper import VERL, Paper


class BestMargin(CreditStage):
    """The lead of a group's best reward over the second best, for the one response that holds it; ties give 0."""

    std: bool = True
    eps: NotNegative = 1e-6

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = rollouts.reward + bonus
        best = reward == groups.extremes(reward)[1]
        others = Groups(groups.index, groups.count, groups.valid & ~best)
        margin = reward - others.extremes(reward)[1]
        if self.std:
            margin = margin / (groups.mean_std(reward)[1] + self.eps)
        alone = best & (groups.sum(best.long()) == 1) & (others.size() > 0)
        return torch.where(alone, margin, 0.0)[:, None].expand(rollouts.mask.shape)


@Paper(
    "Optimizing Language Models for Inference Time Objectives using Reinforcement Learning",
    "2503.19595",
    "code",
    "whether to divide by the deviation, as the framework whose code was read does",
    code=VERL,
)
def grpo_passk(
    *,
    std: Annotated[bool, "divide the lead by the group's standard deviation"] = True,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Only a group's single best response learns, by its lead over the second best."""
    return Objective(BestMargin(std), Clip(FixedBounds(low, high)), TokenMean())
