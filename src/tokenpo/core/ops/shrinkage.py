"""Group means that lean on the other groups if groups are small and alike (empirical Bayes)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .group import Groups


def prior_weight(groups: Groups, x: Tensor) -> float:
    """κ, the number of a group's values that the mean of the other groups is worth, by the method of moments:

        within  = Σ_i (x_i − mean_g)² / (N − K)
        between = Σ_g (mean_g − mean of the means)² / (K − 1) − within · mean_g 1/n_g
        κ       = within / between;   ∞ where groups differ by no more than chance, or there is only one

    Args:
        x: [N]; of the rows that count, N in K groups.
    """
    valid, size, x = groups.valid, groups.size().clamp(min=1).double(), x.double()
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
