"""OPO: on-policy gradient with the baseline of least variance.

    A_i = R_i − Σ_{j in g} |o_j| R_j / Σ_{j in g} |o_j|
    J = 1/Σ|o_i| Σ_i Σ_t A_i lp_it

The baseline of least variance weighs by the gradient's squared norm, which is taken to grow with the response's length.
Defaults: no options: exact on-policy training has no clip.
Departures: a group of one learns nothing; the code that was read uses its reward as the advantage. The token mean is a
framework's. There is no importance ratio for further updates on a rollout batch.
Reductions: with equal lengths the advantage is Dr. GRPO's.
"""

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.parts import CreditStage, LogLikelihood, TokenMean
from ..core.types import Rollouts
from .paper import VERL, Paper


class LengthWeighted(CreditStage):
    """The reward less the group's mean reward, in which a response counts as often as it has tokens."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = (rollouts.reward + bonus).double()
        baseline = groups.mean_std(reward, weight=rollouts.mask.sum(1))[0]
        advantage = torch.where(groups.varied(reward), reward - baseline, 0.0)
        return advantage[:, None].expand(rollouts.mask.shape)


@Paper("On-Policy RL with Optimal Reward Baseline", "2505.23585", "code", code=VERL)
def opo() -> Objective:
    """The plain policy gradient with the group's mean reward, weighted by length, as the baseline."""
    return Objective(LengthWeighted(), LogLikelihood(), TokenMean())
