"""HMPO: the reward of a right answer falls with its length, to 0 beyond the median of its group's right answers.

    c_i = 1[R_i > threshold],   b = median of |o_j| over the responses of the group with c_j = 1
    f(n) = clip(scale · cos(π n / 2b) + shift, 0, cap) where n ≤ b, 0 beyond
    R'_i = f(|o_i|) · c_i;   additive: c_i + f(|o_i|) · c_i
    A_i = (R'_i − mean_g R') / (std_g R' + 1e-6)
    J = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ],   dual clip for A_i < 0

A right answer that is longer than the median of the right ones is worth as little as a wrong one.
Defaults: scale 1, shift 0.8, cap 1, clip 0.2/0.28, dual clip 10, k3 coefficient 0.001 (the authors' script): f is 1 up
to n = 0.87 b, and 0.8 at b.
Options: additive=True keeps 1 for every right answer (the authors' ablation).
Departures: the authors' code multiplies by the score itself: by_score=True puts R_i in place of c_i at right answers.
It treats a score of −1 as 0 and keeps the sign of other negative ones; here a wrong answer is worth 0. Its script also
subtracts a divergence of 0.001 from the reward. Lengths are response tokens. The variant with a fixed length in place
of the median is not implemented.
Reductions: shift ≥ 1 with cap 1 rewards right answers up to the median with 1. A single right answer of a group is
worth f(b) = shift, capped.
"""

import math
from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.parts import Clip, FixedBounds, GroupAdvantage, ReferenceKl, Shaping, TokenMean
from ..core.ranges import AboveZero, Finite, NotNegative
from ..core.types import Rollouts
from .options import Beta, Dual, High, Low, Threshold
from .paper import Paper

Scale = Annotated[NotNegative, "factor of the cosine in the length"]
Shift = Annotated[Finite, "added to the cosine"]
Cap = Annotated[AboveZero, "largest reward for the length"]
Additive = Annotated[bool, "correctness plus the reward for the length, rather than their product"]
ByScore = Annotated[bool, "multiply by the reward of a right answer rather than by 1, as in the authors' code"]


class MedianLength(Shaping):
    """The reward of a right answer as a function of its length, 0 beyond the median of the group's right ones."""

    scale: Scale
    shift: Shift
    cap: Cap
    additive: Additive
    threshold: Threshold
    by_score: ByScore = False

    def __call__(self, rollouts: Rollouts) -> Tensor:
        right = rollouts.mask.any(1) & (rollouts.reward > self.threshold)
        length = rollouts.mask.sum(1).double()
        median = Groups.of(rollouts.group, right).median(length)
        curve = (self.scale * torch.cos(math.pi / 2 * length / median) + self.shift).clamp(0.0, self.cap)
        worth = torch.where(right, rollouts.reward if self.by_score else 1.0, 0.0)
        reward = torch.where(right & (length <= median), curve * worth, 0.0)
        return reward + (worth if self.additive else 0.0) - rollouts.reward


@Paper(
    "Hybrid Median-length Policy Optimization",
    "2606.01934",
    "code",
    code="weekdaymore/HMPO@23d6dc5:verl/experimental/reward_loop/reward_manager/hmpo.py",
)
def hmpo(
    *,
    low: Low = 0.2,
    high: High = 0.28,
    dual: Dual = 10.0,
    scale: Scale = 1.0,
    shift: Shift = 0.8,
    cap: Cap = 1.0,
    additive: Additive = False,
    threshold: Threshold = 0.0,
    by_score: ByScore = False,
    beta: Beta = 1e-3,
) -> Objective:
    """The reward of a right answer falls with its length and is 0 beyond the median of its group's right answers."""
    shaping = (MedianLength(scale, shift, cap, additive, threshold, by_score),)
    penalties = (ReferenceKl(beta),) if beta else ()
    clip = Clip(FixedBounds(low, high), dual=dual)
    return Objective(GroupAdvantage(), clip, TokenMean(), shaping=shaping, penalties=penalties)
