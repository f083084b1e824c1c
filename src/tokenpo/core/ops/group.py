"""Statistics over groups: rows with the same id. Ids are non-negative integers, in any order."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Groups:
    """N rows in K groups; every statistic is returned per row, as that of the row's group.

    Args:
        index: [N] the row's group, in 0..K-1.
        count: K.
        valid: [N] bool, the rows that statistics count.
    """

    index: Tensor
    count: int
    valid: Tensor

    @staticmethod
    def of(group: Tensor, valid: Tensor) -> Groups:
        ids, index = torch.unique(group, return_inverse=True)
        return Groups(index, ids.numel(), valid)

    def one(self) -> Groups:
        """All rows as a single group."""
        return Groups(torch.zeros_like(self.index), 1, self.valid)

    def sum(self, x: Tensor) -> Tensor:
        """Sum of x [N, ...] over the valid rows of each row's group, in the shape of x."""
        # Invalid rows are added to an extra group, which is never read.
        index = torch.where(self.valid, self.index, self.count)
        return x.new_zeros(self.count + 1, *x.shape[1:]).index_add_(0, index, x)[self.index]

    def size(self) -> Tensor:
        """[N] number of valid rows in each row's group."""
        return self.sum(torch.ones_like(self.index))

    def extremes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """([N] minimum, [N] maximum) of x [N] over the valid rows of each row's group."""
        low = x.new_full((self.count,), torch.inf)
        low = low.scatter_reduce(0, self.index, torch.where(self.valid, x, torch.inf), "amin")
        high = x.new_full((self.count,), -torch.inf)
        high = high.scatter_reduce(0, self.index, torch.where(self.valid, x, -torch.inf), "amax")
        return low[self.index], high[self.index]

    def varied(self, x: Tensor) -> Tensor:
        """[N] bool, true where the row is valid and x [N] takes different values in its group."""
        low, high = self.extremes(x)
        return self.valid & (high > low)

    def above_mean(self, x: Tensor) -> Tensor:
        """[N] bool, true where the row is valid and its x [N] exceeds the mean of its group."""
        return self.varied(x) & (x > self.mean_std(x)[0])

    def median(self, x: Tensor) -> Tensor:
        """[N] float64 median of x [N]; the mean of the middle two of an even number, +inf without valid rows."""
        x = torch.where(self.valid, x.double(), torch.inf)
        order = x.argsort()
        order = order[self.index[order].argsort(stable=True)]  # by group, then by value
        rows = torch.bincount(self.index, minlength=self.count)
        first, size, ranked = (rows.cumsum(0) - rows)[self.index], self.size(), x[order]
        # Without valid rows the second term is +inf, whatever the first is.
        return (ranked[first + (size - 1) // 2] + ranked[first + size // 2]) / 2

    def mean_std(self, x: Tensor, weight: Tensor | None = None, correction: int = 1) -> tuple[Tensor, Tensor]:
        """([N] mean, [N] standard deviation) of x [N], both float64; 0 deviation in a group with too few rows.

        Args:
            weight: [N], how often each row counts; None counts each once.
            correction: ddof.
        """
        x = x.double()
        weight = torch.ones_like(x) if weight is None else weight.double()
        mass = self.sum(weight)
        mean = self.sum(weight * x) / mass.clamp(min=1)
        spread = self.sum(weight * (x - mean).square()) / (mass - correction).clamp(min=1)
        return mean, spread.sqrt()


def numbered(names: Sequence[Hashable]) -> list[int]:
    """Numbers the distinct names 0, 1, ... in the order of their first appearance.

    >>> numbered(["b", "a", "b"])
    [0, 1, 0]
    """
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [numbers[name] for name in names]


def prior_weight(groups: Groups, x: Tensor) -> float:
    """κ, the weight of the other groups' mean, in values of the own group; estimated by the method of moments:

        within  = Σ_i (x_i − mean_g)² / (N − K)
        between = Σ_g (mean_g − mean of the means)² / (K − 1) − within · mean_g 1/n_g
        κ       = within / between;   ∞ if groups differ no more than by chance, or there is only one

    N and K count the valid rows and their groups; x [N].
    """
    valid, size = groups.valid, groups.size().clamp(min=1).double()
    mean = groups.mean_std(x)[0]
    count = float((1 / size)[valid].sum())
    inside = torch.where(groups.varied(x), x - mean, 0.0)[valid].square().sum()
    within = float(inside / max(1.0, float(valid.sum()) - count))
    centre = float((mean / size)[valid].sum()) / count
    spread = float(((mean - centre).square() / size)[valid].sum()) / max(1.0, count - 1)
    between = spread - within * float((1 / size.square())[valid].sum()) / count
    return within / between if between > 0 else math.inf


def others_mean(groups: Groups, x: Tensor, prior: float) -> Tensor:
    """[N] float64 ((n − 1) · mean of the group's others + prior · mean of the other groups' rows) / (n − 1 + prior).

    It is x [N] itself without any other valid row, and on invalid rows. A prior of ∞ takes only the other groups.
    """
    whole, size, x = groups.one(), groups.size().double(), x.double()
    own, outside = groups.sum(x), whole.size() - size
    others = (own - x) / (size - 1).clamp(min=1)
    rest = (whole.sum(x) - own) / outside.clamp(min=1)
    if prior == math.inf:
        share = torch.ones_like(x)
    else:
        share = torch.where(size == 1, 1.0, prior / (size - 1 + prior).clamp(min=torch.finfo(torch.float64).tiny))
    share = torch.where(outside == 0, 0.0, share)
    return torch.where(groups.valid & (size + outside > 1), (1 - share) * others + share * rest, x)


def mixed_groups(reward: Tensor, group: Tensor, mask: Tensor) -> Tensor:
    """[N] bool, true for rollouts with a response in groups whose rewards [N] are not all equal; mask [N, T]."""
    return Groups.of(group, mask.any(1)).varied(reward)


def refill(wanted: int, kept: int, drawn: int) -> int:
    """Number of groups to sample next for a batch of `wanted`, estimated from the share kept of those drawn so far.

    >>> refill(8, 0, 8), refill(8, 2, 8), refill(8, 7, 8), refill(8, 8, 8)
    (8, 8, 2, 0)
    """
    return wanted if kept == 0 else min(wanted, -(-(wanted - kept) * drawn // kept))
