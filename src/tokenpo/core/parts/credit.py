"""Credit: rewards of a group become advantages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ..ops.group import Groups
from ..ops.shrinkage import others_mean, prior_weight
from ..ranges import NotNegative
from .slots import CreditStage

if TYPE_CHECKING:
    from torch import Tensor

    from ..types import Rollouts


@dataclass(frozen=True)
class GroupAdvantage(CreditStage):
    """A_i = (R_i − mean_g) / (std_g + eps), the same for every token of the response; GRPO (2402.03300).

    A group whose rewards are all equal gets exactly 0, however the mean rounds. Rows without a response token are in no
    group.

    Args:
        std: divide by the group's standard deviation (ddof 1); without it this is Dr. GRPO's advantage.
        eps: added to the deviation, ≥ 0.
    """

    std: bool = True
    eps: NotNegative = 1e-6

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = rollouts.reward + bonus
        return self.of(groups, reward).to(rollouts.old_logprob.dtype)[:, None].expand(rollouts.mask.shape)

    def of(self, groups: Groups, reward: Tensor) -> Tensor:
        """Advantage [N] of rewards [N], in float64."""
        mean, std = groups.mean_std(reward)
        centred = reward.double() - mean
        return torch.where(groups.varied(reward), centred / (std + self.eps) if self.std else centred, 0.0)


@dataclass(frozen=True)
class ShrunkAdvantage(CreditStage):
    """A_i = (R_i − V_i) / (std + eps), the same for every token of the response; std (ddof 1) is that of the batch.

        V_i = ((n − 1) · mean of the group's others + κ · mean of the other groups) / (n − 1 + κ)
        κ   = variance of rewards within groups / variance between groups, as estimated from the batch

    V_i is an empirical-Bayes estimate of the prompt's mean reward that leaves R_i out. A batch whose rewards are all
    equal gets exactly 0. Rows without a response token are in no group.

    Args:
        eps: added to the deviation, ≥ 0.
    """

    across_groups = True
    eps: NotNegative = 1e-6

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = (rollouts.reward + bonus).double()
        whole = groups.one()
        # Measured from the lowest, so that sums of equal rewards are exactly equal.
        reward = torch.where(groups.valid, reward - whole.extremes(reward)[0], 0.0)
        centred = reward - others_mean(groups, reward, prior_weight(groups, reward))
        advantage = torch.where(whole.varied(reward), centred / (whole.mean_std(reward)[1] + self.eps), 0.0)
        return advantage.to(rollouts.old_logprob.dtype)[:, None].expand(rollouts.mask.shape)
