"""Statistics over groups, the rows that share an id: any non-negative integers, in any order.

Means of groups that are small and alike can lean on the other groups (empirical Bayes).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Groups:
    """Rows in K groups: `index` [N] in 0..K-1; `valid` [N] bool, the rows that count.

    Every method returns, for each row, the statistic of its group.
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
        # The other rows go into one more group, which is never read.
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
        """[N] bool, true where the row counts and its group holds two different values of x [N]."""
        low, high = self.extremes(x)
        return self.valid & (high > low)

    def above_mean(self, x: Tensor) -> Tensor:
        """[N] bool, true where the row counts and its x [N] exceeds the mean of its group."""
        return self.varied(x) & (x > self.mean_std(x)[0])

    def median(self, x: Tensor) -> Tensor:
        """[N] median of x [N] in float64, of an even number of values the mean of the middle two; +inf in a group
        without valid rows."""
        x = torch.where(self.valid, x.double(), torch.inf)
        order = x.argsort()
        order = order[self.index[order].argsort(stable=True)]  # by group, inside a group by value
        rows = torch.bincount(self.index, minlength=self.count)
        first, size, ranked = (rows.cumsum(0) - rows)[self.index], self.size(), x[order]
        # Without valid rows the second is +inf, whatever the first.
        return (ranked[first + (size - 1) // 2] + ranked[first + size // 2]) / 2

    def mean_std(self, x: Tensor, weight: Tensor | None = None, correction: int = 1) -> tuple[Tensor, Tensor]:
        """([N] mean, [N] standard deviation) of x [N]; `weight` [N] counts a row that many times.

        Both are float64. The deviation of a group with too few rows is 0.
        """
        x = x.double()
        weight = torch.ones_like(x) if weight is None else weight.double()
        mass = self.sum(weight)
        mean = self.sum(weight * x) / mass.clamp(min=1)
        spread = self.sum(weight * (x - mean).square()) / (mass - correction).clamp(min=1)
        return mean, spread.sqrt()


def numbered(names: Sequence[Hashable]) -> list[int]:
    """0, 1, ... for the names, in the order in which they first appear.

    >>> numbered(["b", "a", "b"])
    [0, 1, 0]
    """
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [numbers[name] for name in names]


def prior_weight(groups: Groups, x: Tensor) -> float:
    """κ, the number of a group's values that the mean of the other groups is worth, by the method of moments:

        within  = Σ_i (x_i − mean_g)² / (N − K)
        between = Σ_g (mean_g − mean of the means)² / (K − 1) − within · mean_g 1/n_g
        κ       = within / between;   ∞ where groups differ by no more than chance, or there is only one

    Args:
        x: [N]; of the rows that count, N in K groups.
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

    Without other groups it is the mean of the group's others; in a group of one, that of the other groups; x itself
    if there is nothing else, and on rows that do not count.

    Args:
        x: [N].
        prior: ≥ 0; ∞ leaves the mean of the other groups alone.
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
