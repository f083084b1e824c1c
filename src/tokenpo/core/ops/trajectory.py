"""Trajectories of several rows, joined to one row each and taken apart again."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Join:
    """Where N rows lie in M trajectories: one after the other in their order, each up to its last response token.

    Args:
        of: [N] trajectory of each row, numbered in the order of their first rows.
        first: [M] first row of each trajectory.
        here: [M, T'] each token's place in the flattened rows [N · T], −1 for none; None if all have one row.
        there: [N, T] each token's place in the flattened trajectories [M · T'], −1 for none.
    """

    of: Tensor
    first: Tensor
    here: Tensor | None
    there: Tensor | None

    @staticmethod
    def by(trajectory: Tensor, mask: Tensor) -> Join:
        """Joins rows [N] with the same trajectory; mask [N, T]."""
        (n, t), device = mask.shape, mask.device
        ids, place = torch.unique(trajectory, return_inverse=True)
        rows, columns = torch.arange(n, device=device), torch.arange(t, device=device)
        if len(ids) == n:
            return Join(rows, rows, None, None)
        first, order = rows.new_full((len(ids),), n).scatter_reduce_(0, place, rows, "amin").sort()
        of = order.argsort()[place]
        span = ((columns + 1) * mask).amax(1)
        by_trajectory = of.argsort(stable=True)
        begin = torch.empty_like(span)
        begin[by_trajectory] = span[by_trajectory].cumsum(0) - span[by_trajectory]
        begin = begin - begin[first][of]
        width = max(int((begin + span).max()), 1)
        there = (of * width + begin)[:, None] + columns
        there = torch.where(columns < span[:, None], there, -1)
        here = rows.new_full((len(ids) * width,), -1)
        here[there[there >= 0]] = (there.flatten() >= 0).nonzero()[:, 0]
        return Join(of, first, here.view(len(ids), width), there)

    def tokens(self, x: Tensor, *, zero: bool = True) -> Tensor:
        """[M, T'] the tokens of x [N, T]; padding is 0, or the trajectory's first number. Keeps the graph."""
        return x if self.here is None else _taken(x, self.here, self.first, zero)

    def apart(self, x: Tensor, *, zero: bool = True) -> Tensor:
        """[N, T] the tokens of x [M, T']; padding is 0, or the trajectory's first number."""
        return x if self.there is None else _taken(x, self.there, self.of, zero)


def _taken(x: Tensor, places: Tensor, rows: Tensor, zero: bool) -> Tensor:
    padding = places < 0
    taken = x.reshape(-1)[torch.where(padding, rows[:, None] * x.shape[1], places)]
    return taken.masked_fill(padding, 0) if zero else taken
