"""Turns of a response (runs of tokens sampled without a tool in between), gains of its segments, and GAE."""

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
        """Turns from numbers [N, T] that ascend along each row and are 0 where the mask is false."""
        running = turn.cummax(1).values
        before = torch.cat([torch.full_like(running[:, :1], -1), running[:, :-1]], 1)
        first = mask & (mask.cumsum(1) == 1)
        index = (first | mask & (running > before)).cumsum(1)
        count = index[:, -1]
        return Turns((index - 1).clamp(min=0), mask, count, max(int(count.max()), 1))

    @property
    def held(self) -> Tensor:
        """[N, K] bool, true for the turns that a rollout has."""
        return torch.arange(self.number, device=self.count.device) < self.count[:, None]

    def sum(self, x: Tensor) -> Tensor:
        """[N, K] sums of x [N, T] over the tokens of each turn, float64."""
        values = masked.keep(x.double(), self.mask)
        return values.new_zeros(len(x), self.number).scatter_add_(1, self.index, values)

    def largest(self, x: Tensor) -> Tensor:
        """[N, K] largest value of x [N, T] int ≥ 0 in each turn; 0 where a rollout has fewer turns."""
        x = torch.where(self.mask, x, 0)
        return x.new_zeros(len(x), self.number).scatter_reduce_(1, self.index, x, "amax")

    def spread(self, x: Tensor) -> Tensor:
        """x [N, K] at every token [N, T] of its turn."""
        return x.gather(1, self.index)

    def to_go(self, x: Tensor, gamma: float) -> Tensor:
        """[N, K] x_k + gamma x_(k+1) + gamma² x_(k+2) + ..., from rewards x [N, K], 0 beyond a rollout's turns."""
        out = x.clone()
        for k in reversed(range(self.number - 1)):
            out[:, k] += gamma * out[:, k + 1]
        return out


def numbered(mask: Tensor) -> Tensor:
    """[N, T] int, the number of the run of true entries of the mask [N, T]; a tool's tokens are false and end a run.

    >>> numbered(torch.tensor([[True, True, False, True, False]])).tolist()
    [[0, 0, 0, 1, 0]]
    """
    before = torch.cat([torch.zeros_like(mask[:, :1]), mask[:, :-1]], 1)
    run = (mask & ~before).cumsum(1) - 1
    return torch.where(mask, run, 0)


def gains(cuts: Tensor, begins: Tensor, ends: Tensor, reward: Tensor, start: Tensor | None) -> Tensor:
    """[N, T] float64 value after a token's segment − value before it; a segment begins at each cut.

    >>> at = torch.tensor
    >>> cuts, value = at([[False, True, False]]), at([[0.0, 0.5, 0.0]])
    >>> gains(cuts, value, value, reward=at([1.0]), start=at([0.25])).tolist()
    [[0.25, 0.5, 0.5]]

    At each cut [N, T], on a response token, `begins` and `ends` [N, T] are the value before the segment that begins and
    after the one that ends. `reward` [N] is the value after the last one, `start` [N] before the first token; None
    makes the gain 0 up to the first cut.
    """
    n, length = cuts.shape
    begins, ends = begins.double(), ends.double()
    behind, out = reward.double(), torch.zeros(n, length, dtype=torch.float64, device=cuts.device)
    for t in range(length - 1, -1, -1):
        out[:, t] = behind
        behind = torch.where(cuts[:, t], ends[:, t], behind)
    before = torch.full_like(behind, torch.nan) if start is None else start.double()
    for t in range(length):
        before = torch.where(cuts[:, t], begins[:, t], before)
        out[:, t] -= before
    return out.nan_to_num(nan=0.0)


def gae(reward: Tensor, value: Tensor, mask: Tensor, lam: float | Tensor, gamma: float) -> Tensor:
    """A_t = δ_t + γ λ A_t', δ_t = r_t + γ V_t' − V_t, t' the next token of the mask; after the last, V and A are 0.

    [N, T] float64 from reward and value [N, T], 0 outside the mask; `lam` is a number or [N], in [0, 1].
    """
    reward, value = reward.double(), value.double()
    ahead = later = torch.zeros_like(reward[:, 0])
    advantage = torch.zeros_like(reward)
    for t in reversed(range(mask.shape[1])):
        here = mask[:, t]
        delta = reward[:, t] + gamma * ahead - value[:, t]
        later = torch.where(here, delta + gamma * lam * later, later)
        ahead = torch.where(here, value[:, t], ahead)
        advantage[:, t] = torch.where(here, later, 0.0)
    return advantage
