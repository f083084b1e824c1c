"""OTB: at every token the baseline of least variance.

    w_it = 1 − 2 π_it + Σ_v π_v²,   at the old policy: the squared norm of the gradient in the logits
    W_it = Σ_{j ≤ t} w_ij,          with a correction for the sampling engine w_ij ρ_ij², ρ = min(π_old/π_roll, cap)
    B_gt = Σ_i W_it G_it / (Σ_i W_it + 1e-8),   over the rollouts of the group that reach token t
    A_it = G_it − B_gt
    J = 1/Σ|o_i| Σ_i Σ_t [ρ_it] min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)

G_it is the reward still to come: R_i where it all arrives at the end, the sum of `token_reward` from t on otherwise.
Defaults: zero_tail as in the code that was read: where a single rollout is left, B = 0. The clip, 0.2 on both sides,
and the token mean are the framework's.
Departures: token t is the t-th response token, tool tokens left out, as in the framework's form for several turns. The
least G_it of the group is subtracted before B is computed and added to B again, so equal rewards have an advantage of
exactly 0, and where all W are 0 that least G is the baseline. A group of one keeps its reward as its advantage, as
there.
Reductions: rewards at the end, one token for each response and W all equal: Dr. GRPO's advantage.
"""

from typing import Annotated

import torch
from torch import Tensor

from ...core.facts import PROBABILITY, Fact
from ...core.objective import Objective
from ...core.ops import masked
from ...core.ops.group import Groups
from ...core.ops.ratio import log_ratio
from ...core.parts import Clip, CreditStage, FixedBounds, RolloutCorrection, Supplied, TokenMean
from ...core.ranges import at_least
from ...core.types import Rollouts
from ..options import High, Low
from ..paper import VERL, Paper

EPS = 1e-8

ZeroTail = Annotated[bool, "no baseline where a single rollout of the group is left"]
ByToken = Annotated[bool, "rewards arrive at tokens, read from `Rollouts.token_reward`; else all of it at the end"]
Cap = Annotated[float, at_least(1)]


class Collision(Supplied):
    """Σ_v π_v² of the old policy."""

    gives = "old_collision"
    fact = Fact(
        "Σ_v π_v² of the old policy, the probability that two samples agree",
        PROBABILITY,
        neutral=1.0,
        formula=lambda logp: (2 * logp).exp().sum(-1),
    )


class OptimalBaseline(CreditStage):
    """The reward still to come less the group's mean of it at the same token, weighted by the norm of the gradient.

    `cap` bounds the weight of the sampling engine in the norm; None leaves it out.
    """

    zero_tail: ZeroTail = True
    steps: ByToken = False
    cap: Cap | None = None
    collision: Collision = Collision()

    @property
    def reads(self) -> set[str]:
        steps, sampler = {"token_reward"} if self.steps else set(), {"rollout_logprob"} if self.cap else set()
        return steps | sampler

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        mask, groups = rollouts.mask, Groups.of(rollouts.group, rollouts.mask.any(1))
        order = (~mask).int().argsort(dim=1, stable=True)  # response tokens first
        here = mask.gather(1, order)
        to_come = self._to_come(rollouts, bonus).gather(1, order)
        norm = masked.keep(self._norm(rollouts), mask).gather(1, order).cumsum(1) * here
        least = to_come.new_full((groups.count, mask.shape[1]), torch.inf)
        index = groups.index[:, None].expand_as(to_come)
        least.scatter_reduce_(0, index, torch.where(here, to_come, torch.inf), "amin")
        over = torch.where(here, to_come - least[groups.index], 0.0)
        advantage = over - groups.sum(norm * over) / (groups.sum(norm) + EPS)
        alone = groups.sum(here.long()) == 1
        bare = alone if self.zero_tail else alone & (groups.size() == 1)[:, None]
        return torch.zeros_like(advantage).scatter(1, order, torch.where(bare, to_come, advantage))

    def _to_come(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        """[N, T] G, float64."""
        if not self.steps:
            return (rollouts.reward + bonus).double()[:, None].expand(rollouts.mask.shape)
        return rollouts.need("token_reward").double().flip(1).cumsum(1).flip(1) + bonus[:, None]

    def _norm(self, rollouts: Rollouts) -> Tensor:
        """[N, T] w, float64; rounding makes no norm negative."""
        norm = (1 - 2 * rollouts.old_logprob.double().exp() + rollouts.need("old_collision").double()).clamp(min=0.0)
        if self.cap is None:
            return norm
        log = log_ratio(rollouts.old_logprob, rollouts.need("rollout_logprob")).double()
        return norm * log.exp().clamp(max=self.cap).square()


@Paper(
    "The Optimal Token Baseline: Variance Reduction for Long-Horizon LLM-RL",
    "2602.07078",
    "code",
    "the theorem's own text was not read",
    code=VERL,
)
def otb(
    *,
    zero_tail: ZeroTail = True,
    token_reward: ByToken = False,
    rollout_cap: Annotated[Cap | None, "largest weight that corrects for the sampling engine; None: no weight"] = None,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Each token's baseline is the group's mean return, weighted by the squared gradient norms up to that token."""
    credit = OptimalBaseline(zero_tail, token_reward, rollout_cap)
    weights = () if rollout_cap is None else (RolloutCorrection(cap=rollout_cap),)
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), weights=weights)
