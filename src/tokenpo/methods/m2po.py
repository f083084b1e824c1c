"""M2PO: a budget for the second moment of the log-ratios decides where the clip is.

    harmful tokens: A_i > 0 and r_it > 1, or A_i < 0 and r_it < 1;   their v = (log r_it)², ascending, n of them
    τ = ∞ where mean v ≤ budget;   else τ² = v_{k−1}, k the first with (v_1 + ... + v_k + (n − k) v_k) / n ≥ budget
    J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, min(e^−τ, 1 − low), max(e^τ, 1 + high)) A_i)

A fixed clip cuts many tokens of stale rollouts. Here nothing is clipped until the moment of the whole step exceeds the
budget, and then only the tail, never inside [1 − low, 1 + high].
m2po_rollout is another framework's reading: it drops the response tokens with the largest (lp_roll − lp_old)² until the
mean of the rest is below the threshold, or one token is left; the rest has PPO's clip.
Defaults: budget 0.04, low 0.3, high 0.5 (the authors' code); m2po_rollout: 0.04 (AReaL's example), clip 0.2/0.2.
Departures: the moment is that of the optimiser step, the authors' that of a device's micro-batch. An unbounded ratio
may reach e^20, in their code 1e5. AReaL's dropped tokens leave the micro-batch's denominator, here they count; its
weight ρ on the kept ones is a rollout correction.
Reductions: an infinite budget clips nothing; budget 0 is DAPO with low and high, its dual clip off, and so is
m2po_rollout with an infinite threshold.
"""

from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops.ratio import BOUND
from ..core.parts import BatchSignal, Bounds, Clip, FixedBounds, Keep, Look, Ratio, Signal, TokenMean
from ..core.parts.credit import GroupAdvantage
from ..core.ranges import Limit, NotNegative, Share
from ..core.types import Batch, Rollouts
from .options import High, Low
from .paper import Paper

PAPER = Paper(
    "Prosperity before Collapse: How Far Can Off-Policy RL Reach with Stale Data on LLMs?",
    "2510.01161",
    "code",
    "the paper's text was not read; the authors' code and AReaL's differ, and are two methods here",
    code="Infini-AI-Lab/M2PO@4514ce2:verl/trainer/ppo/core_algos.py; "
    "inclusionAI/AReaL@4aef98d:areal/trainer/ppo/actor.py",
)
# As in the authors' code: the bound lies just below the log-ratio of the token that defines it.
_BEYOND = 1e-12

Budget = Annotated[Limit, "largest mean squared log-ratio of the tokens that their advantage pushes further from 1"]


class Reach(BatchSignal):
    """τ [N, T] in nats, the largest log-ratio of a token that its advantage pushes further; 20 within the budget."""

    budget: Budget

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        x = Ratio.log(batch).detach()
        squares = x.double().square()[batch.mask & (x * batch.credit.advantage > 0)].sort().values
        n = len(squares)
        if not n or float(squares.mean()) <= self.budget:
            return torch.full_like(x, BOUND)
        held = squares.cumsum(0) + squares * torch.arange(n - 1, -1, -1, device=x.device)
        first = int((held < n * self.budget).sum())
        reach = (squares[first - 1] - _BEYOND).clamp(min=0).sqrt() if first else squares.new_zeros(())
        return reach.to(x.dtype).expand_as(x)


class Budgeted(Bounds):
    """[min(e^−τ, 1 − low), max(e^τ, 1 + high)]."""

    reach: Reach
    low: Share
    high: NotNegative

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        reach = batch.signal(self.reach)
        return (-reach).exp().clamp(max=1 - self.low), reach.exp().clamp(min=1 + self.high)


class Nearest(Signal):
    """1 at the tokens whose (lp_roll − lp_old)² are smallest, as many as keep its mean below `most`, or one."""

    reads = {"rollout_logprob"}
    most: Limit

    def __call__(self, rollouts: Rollouts) -> Tensor:
        squares = (rollouts.need("rollout_logprob") - rollouts.old_logprob).double().square()
        ranked, order = squares[rollouts.mask].sort()
        mean = ranked.cumsum(0) / torch.arange(1, len(ranked) + 1, device=ranked.device)
        near = mean < self.most
        near[:1] = True
        kept = torch.zeros_like(ranked).scatter_(0, order, near.double())
        return torch.zeros_like(squares).masked_scatter(rollouts.mask, kept).to(rollouts.old_logprob.dtype)


@PAPER
def m2po(
    *,
    budget: Budget = 0.04,
    low: Annotated[Share, "the bound below is at most 1 − low"] = 0.3,
    high: Annotated[NotNegative, "the bound above is at least 1 + high"] = 0.5,
) -> Objective:
    """Clips only when the second moment of the step's log-ratios exceeds a budget, and then only the tail."""
    return Objective(GroupAdvantage(), Clip(Budgeted(Reach(budget), low, high)), TokenMean())


@PAPER
def m2po_rollout(
    *,
    threshold: Annotated[Limit, "bound of the mean squared log-ratio of the tokens that stay"] = 0.04,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Drops the tokens on which the sampler and the old policy differ most."""
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), weights=(Keep(Nearest(threshold)),))
