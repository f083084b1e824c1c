"""The right and the wrong side of a group, for methods that read `Rollouts.influence`."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from ..ops import masked
from ..ops.group import Groups
from ..types import Rollouts


class Sides(NamedTuple):
    """The two sides of every group, parted by its mean reward; a group of equal rewards has none.

    Args:
        right: [N] bool, the reward exceeds the group's mean.
        wrong: [N] bool, it does not.
        share: [N] share of right responses in the group.
        least: [N] smallest mean influence of a token of a right response of the group; +inf where there is none.
    """

    right: Tensor
    wrong: Tensor
    share: Tensor
    least: Tensor


def sides(rollouts: Rollouts) -> Sides:
    """Sides in float64, so that thresholds do not depend on rounding. Rows without a response token are on no side."""
    groups = Groups.of(rollouts.group, rollouts.mask.any(1))
    right = groups.above_mean(rollouts.reward)
    mean = masked.mean(rollouts.need("influence").double(), rollouts.mask, dim=1)[:, 0]
    least, _ = Groups(groups.index, groups.count, right).extremes(mean)
    share = groups.mean_std(right)[0]
    return Sides(right, groups.varied(rollouts.reward) & ~right, share, least)
