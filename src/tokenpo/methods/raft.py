"""RAFT and RAFT++: learn from right answers only.

Paper: A Minimalist Approach to LLM Reasoning (2504.11343); provenance: code.

    A_i = max(R_i, 0)
    RAFT    J = 1/Σ|o_i| Σ_i Σ_t A_i lp_it
    RAFT++  J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

There is no baseline: a group of equal rewards teaches too, and all rewards ≤ 0 teach nothing. The denominator counts
the tokens of wrong responses.
Defaults: clip 0.2/0.2 (code).
Departures: the authors' scripts add a k3 divergence of 0.001 from the reference; none here.
Reductions: at lp = lp_old the two have the same gradient.
"""

from dataclasses import dataclass

from torch import Tensor

from ..core.objective import Objective
from ..core.parts import Clip, CreditStage, FixedBounds, LogLikelihood, TokenMean
from ..core.types import Rollouts
from .options import High, Low
from .paper import Paper

PAPER = Paper(
    "A Minimalist Approach to LLM Reasoning: from Rejection Sampling to Reinforce", "2504.11343", "code",
    code="RLHFlow/Minimal-RL@e3b49f0:verl/trainer/ppo/core_algos.py",
)  # fmt: skip


@dataclass(frozen=True)
class PositiveReward(CreditStage):
    """max(R, 0), whatever the group."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return (rollouts.reward + bonus).clamp(min=0)[:, None].expand(rollouts.mask.shape)


@PAPER
def raft() -> Objective:
    """Log-likelihood of right responses, weighted by their reward."""
    return Objective(PositiveReward(), LogLikelihood(), TokenMean())


@PAPER
def raft_pp(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """RAFT with an importance ratio and its clip."""
    return Objective(PositiveReward(), Clip(FixedBounds(low, high)), TokenMean())
