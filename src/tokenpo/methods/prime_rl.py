"""prime-rl: DPPO's mask on the change of a probability, and a squared log-ratio that pulls back to the sampler.

    q_it = exp(lp_it − lp_roll,it),   d_it = exp(lp_it) − exp(lp_roll,it)
    keep_it = d_it ≤ high where A_i > 0, d_it ≥ −low elsewhere
    J = 1/Σ|o_i| Σ_i Σ_t [ keep_it · q_it A_i − kl (log q_it)² ],   A_i = R_i − mean_g R

There is no old policy: rollouts may be several updates old, and the ratio is to the policy that sampled. The penalty
applies to dropped tokens too.
Defaults: low and high 0.2, kl 1e-3 (its settings; its documentation shows a capped ratio, its code has none).
Departures: log q is bounded to ±20, flat beyond. Its trainer leaves groups without an advantage out of the batch; here
they stay, with their penalty.
Reductions: kl = 0 has the gradient of dppo_tv with that threshold, without its cap, on the advantage of dr_grpo. At
lp = lp_roll the penalty is idle.
"""

from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops.ratio import log_ratio
from ..core.parts import GroupAdvantage, Keep, Penalty, RolloutRatio, Selection, TokenMean, Unclipped
from ..core.ranges import NotNegative
from ..core.types import Batch, Trust
from .paper import Paper

Fall = Annotated[NotNegative, "largest fall of a probability that is pushed down"]
Rise = Annotated[NotNegative, "largest rise of a probability that is pushed up"]


class NearSampler(Selection):
    """Tokens whose probability has not moved too far from the sampler's in the direction of their advantage."""

    reads = {"rollout_logprob"}
    low: Fall
    high: Rise

    def __call__(self, batch: Batch) -> Tensor:
        moved = batch.policy.logprob.detach().exp() - batch.need("rollout_logprob").exp()
        return torch.where(batch.credit.advantage > 0, moved <= self.high, moved >= -self.low)


class SquaredLogRatio(Penalty):
    """coef · (lp − lp_roll)²."""

    reads = {"rollout_logprob"}
    coef: NotNegative

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return self.coef * log_ratio(batch.policy.logprob, batch.need("rollout_logprob")).square()


@Paper(
    "Rethinking the Trust Region in LLM Reinforcement Learning (prime-rl's default loss)",
    "2602.04879",
    "code",
    "a framework's loss: DPPO's mask and another paper's penalty, read in its code",
    code="PrimeIntellect-ai/prime-rl@559b447:src/prime_rl/trainer/rl/loss.py",
)
def prime_rl(
    *,
    low: Fall = 0.2,
    high: Rise = 0.2,
    kl: Annotated[NotNegative, "coefficient of the squared log-ratio to the sampler"] = 1e-3,
) -> Objective:
    """Uses the ratio to the sampler and drops tokens whose probability has moved too far."""
    weights, penalties = (Keep(NearSampler(low, high)),), (SquaredLogRatio(kl),) if kl else ()
    return Objective(
        GroupAdvantage(std=False), Unclipped(RolloutRatio()), TokenMean(), weights=weights, penalties=penalties
    )
