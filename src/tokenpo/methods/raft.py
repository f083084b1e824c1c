"""RAFT, RAFT++ and Reinforce-Rej: the plain reward, of right answers or in groups whose rewards differ.

    RAFT           A_i = max(R_i, 0),   J = 1/Σ|o_i| Σ_i Σ_t A_i lp_it
    RAFT++         A_i = max(R_i, 0),   J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)
    Reinforce-Rej  A_i = R_i where the rewards of the group differ, 0 elsewhere;   J as in RAFT++

RAFT has no baseline: a group of equal rewards teaches too, and all rewards ≤ 0 teach nothing. Reinforce-Rej is the
paper's finding: what helps GRPO is that groups of equal rewards teach nothing, not the normalisation. The denominators
count all tokens, those of wrong responses and rejected groups too.
Defaults: clip 0.2/0.2 (code). Rejection with rewards 0 and 1 teaches right responses alone; −1 and 1 make wrong ones
count.
Departures: in Reinforce-Rej a group of one learns nothing; the authors' code keeps its reward. Their scripts add a k3
divergence of 0.001 from the reference, and their framework a dual clip of 3 for negative rewards; none here.
Reductions: at lp = lp_old RAFT and RAFT++ have the same gradient. With rewards 0 and 1 and mixed groups only
Reinforce-Rej is RAFT++.
"""

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.parts import Clip, CreditStage, FixedBounds, LogLikelihood, TokenMean
from ..core.types import Rollouts
from .options import High, Low
from .paper import Paper

PAPER = Paper(
    "A Minimalist Approach to LLM Reasoning: from Rejection Sampling to Reinforce",
    "2504.11343",
    "code",
    code="RLHFlow/Minimal-RL@e3b49f0:verl/trainer/ppo/core_algos.py",
)


class PositiveReward(CreditStage):
    """max(R, 0), whatever the group."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return (rollouts.reward + bonus).clamp(min=0)[:, None].expand(rollouts.mask.shape)


class MixedReward(CreditStage):
    """The reward in groups whose rewards differ, 0 in the others."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        # The rewards before shaping: a length penalty must not make a group mixed.
        mixed = Groups.of(rollouts.group, rollouts.mask.any(1)).varied(rollouts.reward)
        return torch.where(mixed, rollouts.reward + bonus, 0.0)[:, None].expand(rollouts.mask.shape)


@PAPER
def raft() -> Objective:
    """Log-likelihood of right responses, weighted by their reward."""
    return Objective(PositiveReward(), LogLikelihood(), TokenMean())


@PAPER
def raft_pp(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """RAFT with an importance ratio and its clip."""
    return Objective(PositiveReward(), Clip(FixedBounds(low, high)), TokenMean())


@PAPER
def reinforce_rej(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """The reward itself is the advantage, in groups that hold right and wrong responses."""
    return Objective(MixedReward(), Clip(FixedBounds(low, high)), TokenMean())
