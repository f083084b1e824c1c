"""REINFORCE++: advantages are normalised over the whole batch, not over a group.

    whiten(x) = (x − mean x) / √(var x + 1e-8),   mean and variance (ddof 1) over all tokens of the batch
    REINFORCE++           A_it = whiten(R_i − beta Σ_{s ≥ t} (lp_old − lp_ref)_is)
    REINFORCE++-baseline  A_it = whiten(R_i − mean_g R),   and the loss adds beta · k2(π_ref/π)
    J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)

Defaults: clip 0.2/0.2, discount 1 (code); beta = 0, as everywhere here for verifiable rewards. That the baseline
variant takes k2 is second-hand.
Departures: the whitening is verl's; OpenRLHF, the authors' framework, divides by the population's variance, at least
1e-8. Equal rewards give exactly 0. In REINFORCE++-baseline a group of one has x = 0; the framework keeps its reward.
Whitening gives a group of equal rewards, x = 0, an advantage where the batch's mean is not 0.
Reductions: none to GRPO: the group's deviation is not divided by.
"""

from typing import Annotated

from torch import Tensor

from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.ops.masked import whiten
from ..core.parts import K2, Clip, CreditStage, FixedBounds, GroupAdvantage, ReferenceKl, TokenMean
from ..core.ranges import NotNegative
from ..core.types import Rollouts
from .options import High, Low
from .paper import VERL, Paper

PAPER = Paper(
    "REINFORCE++: Stabilizing Critic-Free Policy Optimization with Global Advantage Normalization",
    "2501.03262",
    "code",
    "the k2 estimator of the baseline variant is second-hand",
    code=f"{VERL}; OpenRLHF/OpenRLHF@3c3be62:openrlhf/trainer/ppo_utils/experience_maker.py",
)


class WhitenedReturn(CreditStage):
    """The reward less beta times the KL still to come at each token, whitened over the tokens of the batch."""

    across_groups = True
    beta: NotNegative = 0.0

    @property
    def reads(self) -> set[str]:
        return {"ref_logprob"} if self.beta else set()

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        reward = (rollouts.reward + bonus).double()[:, None].expand(rollouts.mask.shape)
        if self.beta:
            kl = (rollouts.old_logprob - rollouts.need("ref_logprob")).double()
            reward = reward - self.beta * kl.flip(1).cumsum(1).flip(1)
        return whiten(reward, rollouts.mask)


class WhitenedBaseline(CreditStage):
    """The reward less its group's mean, whitened over the tokens of the batch."""

    across_groups = True

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        centred = GroupAdvantage(std=False).of(groups, (rollouts.reward + bonus).double())
        return whiten(centred[:, None].expand(rollouts.mask.shape), rollouts.mask)


@PAPER
def reinforce_pp(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    beta: Annotated[NotNegative, "coefficient of the divergence from the reference in the reward; 0 needs none"] = 0.0,
) -> Objective:
    """Normalises returns over all tokens of the batch, without groups."""
    return Objective(WhitenedReturn(beta), Clip(FixedBounds(low, high)), TokenMean())


@PAPER
def reinforce_pp_baseline(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    beta: Annotated[NotNegative, "coefficient of the k2 divergence from the reference in the loss; 0 needs none"] = 0.0,
) -> Objective:
    """Takes the group's mean as the baseline and the batch's deviation as the scale."""
    penalties = (ReferenceKl(beta, K2()),) if beta else ()
    return Objective(WhitenedBaseline(), Clip(FixedBounds(low, high)), TokenMean(), penalties=penalties)
