"""Reinforce-Rej: the plain reward, on prompts that are neither solved nor hopeless.

Paper: A Minimalist Approach to LLM Reasoning (2504.11343); provenance: code.

    A_i = R_i where the rewards of the group differ, 0 elsewhere
    J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

The paper's finding: what helps GRPO is that groups of equal rewards teach nothing, not the normalisation.
Defaults: clip 0.2/0.2 (code). With rewards 0 and 1 only right responses teach; −1 and 1 make wrong ones count.
Departures: a group of one learns nothing here; the authors' code keeps its reward. The authors' scripts add a k3
divergence of 0.001 from the reference, and their framework a dual clip of 3 for negative rewards; none here. The
denominator counts the rejected groups' tokens.
Reductions: with rewards 0 and 1 and mixed groups only it is RAFT++.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.parts import Clip, CreditStage, FixedBounds, TokenMean
from ..core.types import Rollouts
from .options import High, Low
from .paper import Paper


@dataclass(frozen=True)
class MixedReward(CreditStage):
    """The reward in groups whose rewards differ, 0 in the others."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        # The rewards before shaping: a length penalty must not make a group mixed.
        mixed = Groups.of(rollouts.group, rollouts.mask.any(1)).varied(rollouts.reward)
        return torch.where(mixed, rollouts.reward + bonus, 0.0)[:, None].expand(rollouts.mask.shape)


@Paper(
    "A Minimalist Approach to LLM Reasoning: from Rejection Sampling to Reinforce", "2504.11343", "code",
    code="RLHFlow/Minimal-RL@e3b49f0:verl/trainer/ppo/core_algos.py",
)  # fmt: skip
def reinforce_rej(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """The reward itself is the advantage, in groups that hold right and wrong responses."""
    return Objective(MixedReward(), Clip(FixedBounds(low, high)), TokenMean())
