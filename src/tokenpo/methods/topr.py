"""TOPR: right answers as in supervised learning, wrong ones only as far as the policy still gives them.

    A_i = 1 where R_i > threshold, −1 elsewhere;   signal="advantage": A_i = R_i − mean_g R
    W_i = Π_t r_it;   level="token": W_it = r_it
    a_i = 1 where A_i ≥ 0, min(sg W_i, 1) where A_i < 0
    J = 1/N Σ_i Σ_t a_i A_i lp_it

Pushing down answers that the policy no longer gives makes REINFORCE unstable off-policy: their weight tapers off.
Defaults: the ratio of whole responses and rewards of ±1 without a baseline (the paper's rule, second-hand). The
threshold 0.5 is ours. There is no clip and no divergence.
Options: level="token" is a framework's form, which it applies to advantages; read in its code.
Departures: the anchor is the old policy; the paper's is the policy that sampled. The mean is over the responses of the
step, the paper's sum over the data set. The log of W is bounded to ±20.
Reductions: at lp = lp_old it is REINFORCE on the sum of log-probabilities. Right answers alone are RAFT with another
denominator.
"""

from typing import Annotated, Literal

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.parts import Bounds, ConstantLength, CreditStage, DetachedClip, GroupAdvantage, ProductSequence, TokenRatio
from ..core.ranges import Finite
from ..core.types import Batch, Rollouts
from .paper import Paper


class SignedOutcome(CreditStage):
    """1 where the reward exceeds the threshold, −1 elsewhere, whatever the group; shaping is added."""

    threshold: Finite

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        outcome = torch.where(rollouts.reward > self.threshold, 1.0, -1.0).to(bonus.dtype) + bonus
        return outcome[:, None].expand(rollouts.mask.shape)


class Tapered(Bounds):
    """Exactly 1 where the advantage is not negative, [0, 1] where it is."""

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        advantage = batch.credit.advantage
        return (advantage >= 0).to(advantage.dtype), torch.ones_like(advantage)


@Paper(
    "Tapered Off-Policy REINFORCE: Stable and efficient reinforcement learning for LLMs",
    "2503.14286",
    "second-hand",
    "threshold and denominator are ours; the token level is a framework's code, not the paper's",
)
def topr(
    *,
    level: Annotated[Literal["sequence", "token"], "ratio of a whole response or of each token"] = "sequence",
    signal: Annotated[
        Literal["outcome", "advantage"], "±1 by the outcome, or the advantage over the group's mean reward"
    ] = "outcome",
    threshold: Annotated[Finite, 'with signal="outcome" a response is right when its reward exceeds this'] = 0.5,
) -> Objective:
    """Raises the log-likelihood of right answers, lowers that of wrong ones as far as the policy still gives them."""
    ratio = {"sequence": ProductSequence(), "token": TokenRatio()}[level]
    credit = {"outcome": SignedOutcome(threshold), "advantage": GroupAdvantage(std=False)}[signal]
    return Objective(credit, DetachedClip(Tapered(), ratio), ConstantLength(1.0))
