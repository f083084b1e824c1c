"""Numbers with their standard errors, by the jackknife over independent replicates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Estimate:
    """A statistic of R replicates.

    Args:
        value: of all.
        without: [R] of all but one.
    """

    value: float
    without: tuple[float, ...] = ()

    @property
    def error(self) -> float:
        """Standard error; NaN without replicates."""
        count = len(self.without)
        if count < 2:
            return math.nan
        mean = sum(self.without) / count
        return math.sqrt((count - 1) / count * sum((x - mean) ** 2 for x in self.without))


def jackknife(statistic: Callable[..., float], *replicates: Tensor) -> Estimate:
    """Of tensors [R, ...] whose first axis is the replicate."""
    count = len(replicates[0])
    kept = [torch.arange(count) != left for left in range(count)]
    return Estimate(float(statistic(*replicates)), tuple(float(statistic(*(x[k] for x in replicates))) for k in kept))


def combined(function: Callable[..., float], *estimates: Estimate) -> Estimate:
    """A function of estimates that were made of the same replicates, so that what they share cancels."""
    pairs = zip(*(estimate.without for estimate in estimates), strict=True)
    return Estimate(function(*(e.value for e in estimates)), tuple(function(*row) for row in pairs))


def mean_of(values: Sequence[float]) -> Estimate:
    """The mean of one number a replicate."""
    return jackknife(lambda x: float(x.mean()), torch.tensor(values, dtype=torch.float64))
