"""Reward shaping: bonuses that are added to the reward before credit compares the group."""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.group import Groups
from ..ranges import Count, Finite, NotNegative, Share, whole
from ..types import Rollouts
from .part import Shaping


class SoftOverlong(Shaping):
    """DAPO's soft overlong penalty (2503.14476, eq. 13): 0 up to L_max − L_cache tokens, then linear to −1 at L_max.

    Args:
        length: L_max, tokens, ≥ 1.
        cache: L_cache, tokens over which the penalty grows, in 1..length.
    """

    length: Count
    cache: Count

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(cache=whole(1, self.length).because("the length"))

    def __call__(self, rollouts: Rollouts) -> Tensor:
        over = rollouts.mask.sum(1) - (self.length - self.cache)
        return -(over.to(rollouts.reward.dtype) / self.cache).clamp(0.0, 1.0)


class GroupOverlong(Shaping):
    """GTPO's group-relative overlong penalty (2508.04349): long correct responses to easy prompts are penalised.

    On a prompt with accuracy ≥ `easy`, a correct response longer than L⁺ gets −scale · (|o| − L⁺)/L⁺, and −scale from
    2 L⁺ on. L⁺ = max((min + max)/2, mean) of the lengths of the group's correct responses. All other responses get 0.

    Args:
        easy: accuracy from which a prompt counts as easy: the paper's g, whose value the paper does not give.
        scale: largest penalty, ≥ 0.
        threshold: a response is correct when its reward exceeds this.
    """

    easy: Share = 0.5
    scale: NotNegative = 0.5
    threshold: Finite = 0.0

    def __call__(self, rollouts: Rollouts) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        correct = groups.valid & (rollouts.reward > self.threshold)
        among_correct = Groups(groups.index, groups.count, correct)
        length = rollouts.mask.sum(1).to(rollouts.reward.dtype)
        accuracy = among_correct.size() / groups.size().clamp(min=1)
        low, high = among_correct.extremes(length)
        target = torch.maximum((low + high) / 2, among_correct.sum(length) / among_correct.size().clamp(min=1))
        excess = ((length - target) / target).clamp(0.0, 1.0)
        return torch.where(correct & (accuracy >= self.easy), -self.scale * excess, 0.0)
