"""Right and wrong responses of each group, for methods that read `Rollouts.influence`."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..ops import masked
from ..ops.group import Groups
from ..types import Rollouts


class Sides(NamedTuple):
    """The responses of every group, divided at the group's mean reward; neither side where all rewards are equal.

    Args:
        right: [N] bool, the reward exceeds the group's mean.
        wrong: [N] bool, the reward does not exceed it.
        share: [N] share of right responses in the group.
        least: [N] smallest mean influence over the tokens of a right response of the group; +inf without one.
    """

    right: Tensor
    wrong: Tensor
    share: Tensor
    least: Tensor


def sides(rollouts: Rollouts) -> Sides:
    """The sides, from float64 so that thresholds do not depend on rounding; rows without a token are on neither."""
    groups = Groups.of(rollouts.group, rollouts.mask.any(1))
    right = groups.above_mean(rollouts.reward)
    mean = masked.mean(rollouts.need("influence").double(), rollouts.mask, dim=1)[:, 0]
    least, _ = Groups(groups.index, groups.count, right).extremes(mean)
    share = groups.mean_std(right)[0]
    return Sides(right, groups.varied(rollouts.reward) & ~right, share, least)
