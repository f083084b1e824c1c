"""Turns of a response: runs of tokens sampled without a tool or an environment in between."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import masked


@dataclass(frozen=True, eq=False)
class Turns:
    """The turns of each of N rollouts, numbered from 0 without gaps.

    Args:
        index: [N, T] int, the turn of each response token; anything where the mask is false.
        mask: [N, T] bool, true on response tokens.
        count: [N] int, turns of each rollout.
        number: K, the most turns of a rollout, at least 1.
    """

    index: Tensor
    mask: Tensor
    count: Tensor
    number: int

    @staticmethod
    def of(turn: Tensor, mask: Tensor) -> Turns:
        """From numbers [N, T] that ascend along each row, 0 where the mask is false."""
        running = turn.cummax(1).values
        before = torch.cat([torch.full_like(running[:, :1], -1), running[:, :-1]], 1)
        first = mask & (mask.cumsum(1) == 1)
        index = (first | mask & (running > before)).cumsum(1)
        count = index[:, -1]
        return Turns((index - 1).clamp(min=0), mask, count, max(int(count.max()), 1))

    @property
    def held(self) -> Tensor:
        """[N, K] bool, the turns that there are."""
        return torch.arange(self.number, device=self.count.device) < self.count[:, None]

    def sum(self, x: Tensor) -> Tensor:
        """[N, K] sums of x [N, T] over the tokens of each turn, float64."""
        values = masked.keep(x.double(), self.mask)
        return values.new_zeros(len(x), self.number).scatter_add_(1, self.index, values)

    def largest(self, x: Tensor) -> Tensor:
        """[N, K] largest value of x [N, T] int ≥ 0 in each turn; 0 where there is no turn."""
        x = torch.where(self.mask, x, 0)
        return x.new_zeros(len(x), self.number).scatter_reduce_(1, self.index, x, "amax")

    def spread(self, x: Tensor) -> Tensor:
        """x [N, K] at every token [N, T] of its turn."""
        return x.gather(1, self.index)

    def to_go(self, x: Tensor, gamma: float) -> Tensor:
        """[N, K] x_k + gamma x_(k+1) + gamma² x_(k+2) + ..., of rewards x [N, K] that are 0 where there is no turn."""
        out = x.clone()
        for k in reversed(range(self.number - 1)):
            out[:, k] += gamma * out[:, k + 1]
        return out


def numbered(mask: Tensor) -> Tensor:
    """[N, T] int, a turn for each run of true entries of the mask [N, T], which leaves out a tool's tokens.

    >>> numbered(torch.tensor([[True, True, False, True, False]])).tolist()
    [[0, 0, 0, 1, 0]]
    """
    before = torch.cat([torch.zeros_like(mask[:, :1]), mask[:, :-1]], 1)
    run = (mask & ~before).cumsum(1) - 1
    return torch.where(mask, run, 0)
