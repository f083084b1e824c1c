"""Credit from coalitions: the rewards of subsets of a response's segments give each segment its Owen value.

`Coalitions` defines the segments and the subsets to score. An engine, or a loop of your own, scores them with the
task's verifier and fills in `Rollouts.gain`, the Owen value of the token's segment.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Annotated

import torch
from torch import Tensor

from ..ops.group import Groups
from ..ops.turns import Turns
from ..ranges import Count, NotNegative, TokenId, whole
from ..types import Rollouts
from .credit import GroupAdvantage
from .part import CreditStage, Part

MOST = 10  # segments of a response, of which up to 2^10 subsets are scored
ROUNDING = 1e-6  # a group's deviation that is smaller, relative to its differences between segments, is rounding
Scorer = Callable[[Sequence[tuple[int, list[int]]]], Sequence[float]]


class Coalitions(Part):
    """Divides a response into K segments and computes the exact Owen value of each.

        φ_k = mean of v(S ∪ k) − v(S) over the allowed orders of the segments, S the segments before k
        v(S) = reward of a response that consists of the segments S alone, in their order;  Σ_k φ_k = R − v(∅)

    An allowed order keeps the segments of a union together. With one segment per union, or a single union, φ is the
    Shapley value.

    Args:
        segments: largest K, 1 to 10; a response with fewer units has one segment per unit.
        separator: id of the token that ends a unit, such as a newline; None makes every token a unit. The units of a
            response are divided among its segments as evenly as possible.
        union: number of neighbouring segments in a union.
    """

    segments: Annotated[int, whole(1, MOST)]
    separator: TokenId | None = None
    union: Count = 1

    @property
    def reads(self) -> set[str]:
        return set() if self.separator is None else {"token_ids"}

    def segment(self, rollouts: Rollouts) -> Tensor:
        """[N, T] int, the segment of each token, counted from 0; a tool's tokens belong to a segment beside them."""
        mask = rollouts.mask
        if self.separator is None:
            unit = (mask.cumsum(1) - 1).clamp(min=0)
        else:
            ends = mask & (rollouts.need("token_ids") == self.separator)
            unit = ends.cumsum(1) - ends.long()
        units = torch.where(mask, unit, 0).amax(1, keepdim=True) + 1
        return unit.clamp(max=units - 1) * units.clamp(max=self.segments) // units

    def gain(self, rollouts: Rollouts, score: Scorer) -> Tensor:
        """[N, T] the Owen value of the token's segment, in units of the reward.

        Args:
            rollouts: with token_ids.
            score: function from a list of (row, token ids of a subset of its response) to their rewards. It is called
                once, with each distinct subset of a group once, and without whole responses, whose reward is known.
        """
        ids, of_token, group = rollouts.need("token_ids"), self.segment(rollouts).cpu(), rollouts.group.tolist()
        parts = [self._parts(*row) for row in zip(ids.tolist(), of_token.tolist(), rollouts.mask.tolist(), strict=True)]
        row_of: dict[tuple[int, tuple[int, ...]], int] = {}
        for row, subsets in enumerate(parts):
            for part in subsets.values():
                row_of.setdefault((group[row], part), row)
        rewards = dict(zip(row_of, score([(row, list(part)) for (_, part), row in row_of.items()]), strict=True))
        worth = torch.zeros(len(rollouts), self.segments, dtype=torch.float64)
        for row, subsets in enumerate(parts):
            count = len(set(of_token[row, rollouts.mask[row].cpu()].tolist()))
            for members, part in subsets.items():
                worth[row, :count] += owen_weights(count, self.union)[members] * rewards[group[row], part]
            if count:
                worth[row, :count] += owen_weights(count, self.union)[-1] * float(rollouts.reward[row])
        return torch.where(rollouts.mask, worth.gather(1, of_token).to(rollouts.mask.device), 0.0)

    def _parts(self, ids: list[int], of_token: list[int], mask: list[bool]) -> dict[int, tuple[int, ...]]:
        """The token ids of each subset to score, by its bit mask (bit k is segment k); without the whole response."""
        length = max((t + 1 for t, on in enumerate(mask) if on), default=0)
        sets = owen_weights(max(of_token[:length], default=-1) + 1, self.union)[:-1].any(1).nonzero()[:, 0].tolist()
        numbered = list(zip(ids[:length], of_token, strict=False))
        return {members: tuple(token for token, k in numbered if members >> k & 1) for members in sets}


class SegmentShare(CreditStage):
    """A_it = A_i + share · (K φ_k − Σ_j φ_j) / (std_g + eps), k the segment of t, φ from `gain`, A_i from `group`.

    For any φ the mean of A_it over the segments of a response is A_i. A group whose rewards are all equal gets 0; one
    whose rewards are equal up to rounding, no differences between segments.

    Args:
        by: the segments and the subsets that are scored.
        share: factor on the differences between segments, ≥ 0; 0 leaves A_i alone.
        group: the advantage of a response.
    """

    reads = {"gain"}
    by: Coalitions
    share: NotNegative = 1.0
    group: GroupAdvantage = GroupAdvantage()

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        mask, reward = rollouts.mask, rollouts.reward + bonus
        groups = Groups.of(rollouts.group, mask.any(1))
        segments = Turns.of(torch.where(mask, self.by.segment(rollouts), 0), mask)
        tokens = segments.sum(torch.ones_like(rollouts.old_logprob)).clamp(min=1)
        worth = segments.sum(rollouts.need("gain")) / tokens
        apart = segments.count[:, None] * worth - worth.sum(1, keepdim=True)
        std = groups.mean_std(reward)[1]
        # Sums of rewards in float32 differ by rounding; divided by such a deviation, a gain would be huge.
        told = groups.varied(reward) & (std > ROUNDING * groups.extremes(apart.abs().amax(1))[1])
        scale = std + self.group.eps if self.group.std else 1.0
        apart = torch.where(told, self.share / scale, 0.0)[:, None] * apart
        return self.group.of(groups, reward)[:, None] + segments.spread(apart)


@functools.cache
def owen_weights(count: int, union: int) -> Tensor:
    """[2^count, count] float64: v(S) [2^count] times this matrix gives the Owen values [count] of the players.

    Bit k of the row number S is player k. Each union has `union` neighbours; the last may have fewer. A set S that no
    value depends on has weights 0.

    >>> owen_weights(2, 1).tolist()
    [[-0.5, -0.5], [0.5, -0.5], [-0.5, 0.5], [0.5, 0.5]]
    """
    weights = torch.zeros(2**count, count, dtype=torch.float64)
    unions = [range(first, min(first + union, count)) for first in range(0, count, union)]
    for player in range(count):
        others = [sum(1 << x for x in members) for members in unions if player not in members]
        partners = [1 << x for members in unions if player in members for x in members if x != player]
        for outside, inside in itertools.product(_subsets(others), _subsets(partners)):
            before = sum(outside) + sum(inside)
            share = _chance(len(outside), len(others)) * _chance(len(inside), len(partners))
            weights[before | 1 << player, player] += share
            weights[before, player] -= share
    return weights


def _subsets(of: Sequence[int]) -> list[tuple[int, ...]]:
    return [x for size in range(len(of) + 1) for x in itertools.combinations(of, size)]


def _chance(before: int, others: int) -> float:
    """Probability that, in a random order, exactly a given set of `before` of the `others` precedes a player."""
    return 1 / ((others + 1) * math.comb(others, before))
