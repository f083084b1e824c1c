"""Credit: rewards of a group become advantages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ..ops.group import Groups
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
