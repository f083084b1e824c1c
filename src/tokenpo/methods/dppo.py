"""DPPO: a trust region in probability, not in the ratio.

    p, p_a = probability of the sampled token now and under the anchor: the policy that sampled it
    tv: d = |p − p_a|      kl: d = p_a log(p_a / p) + (1 − p_a) log((1 − p_a) / (1 − p))
    keep_it = d ≤ threshold, or A_i > 0 and p ≤ p_a, or A_i < 0 and p ≥ p_a
    J = 1/Σ|o_i| Σ_i Σ_t keep_it · sg[min(p/p_a, cap)] · A_i · lp_it

A ratio says little about a rare token: from probability 0.001 to 0.002 it is 2. The divergence of the events "this
token" and "any other" bounds that of the whole distribution from below.
Defaults: threshold 0.15 (tv) and 0.05 (kl), anchor the rollout policy, cap 20 (a framework's code; the paper warns of a
small one). anchor="old" needs no log-probabilities of the sampler.
Departures: the anchor is the policy that sampled, as the authors'; verl's is the old one. The authors' cap is 10 where
their configuration names none; verl's is 3, the default of its clip_ratio_c, and clip_ratio_c=20 makes it ours. 1e-8 is
added to 1 − p in the logarithm, as in verl. The log-ratio is bounded to ±20.
Reductions: an unbounded threshold and cap, with anchor="old", has the gradient of KL-Cov with coef = 0: r A, unclipped.
"""

from typing import Annotated, Literal

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.parts import DetachedClip, FixedBounds, GroupAdvantage, Region, RolloutRatio, TokenMean, TokenRatio
from ..core.ranges import Limit, limit
from ..core.types import Batch
from .paper import VERL, Paper

PAPER = Paper(
    "Rethinking the Trust Region in LLM Reinforcement Learning",
    "2602.04879",
    "code",
    code=f"sail-sg/Stable-RL@c6af1d1:verl/trainer/ppo/core_algos.py; {VERL}",
)
TINY = 1e-8
Cap = Annotated[float, limit(1)]
Anchor = Annotated[Literal["rollout", "old"], "the policy that the current one is compared with"]


class BinaryDivergence(Region):
    """Tokens whose probability is near the anchor's, by total variation or binary `kl` (nats), or moves back to it."""

    threshold: Limit
    anchor: TokenRatio | RolloutRatio
    kl: bool

    def __call__(self, batch: Batch) -> Tensor:
        logprob = batch.policy.logprob.detach()
        x = self.anchor(batch).detach().log()
        now, anchored = logprob.exp(), (logprob - x).exp()
        # 1 − p by expm1: near p = 1 the difference of two rounded numbers is noise.
        other = torch.log((TINY - (logprob - x).clamp(max=0).expm1()) / (TINY - logprob.clamp(max=0).expm1()))
        divergence = (1 - anchored) * other - anchored * x if self.kl else (now - anchored).abs()
        returning = torch.where(batch.credit.advantage > 0, now <= anchored, now >= anchored)
        return (divergence <= self.threshold) | returning


def _dppo(threshold: float, cap: float, anchor: str, kl: bool) -> Objective:
    ratio = {"rollout": RolloutRatio(), "old": TokenRatio()}[anchor]
    surrogate = DetachedClip(FixedBounds(1.0, cap - 1), ratio, BinaryDivergence(threshold, ratio, kl))
    return Objective(GroupAdvantage(), surrogate, TokenMean())


@PAPER
def dppo_tv(
    *,
    threshold: Annotated[Limit, "largest change of a token's probability"] = 0.15,
    cap: Annotated[Cap, "largest importance weight"] = 20.0,
    anchor: Anchor = "rollout",
) -> Objective:
    """Drops tokens whose probability moved too far from the sampler's."""
    return _dppo(threshold, cap, anchor, kl=False)


@PAPER
def dppo_kl(
    *,
    threshold: Annotated[Limit, "largest divergence of a token, nats"] = 0.05,
    cap: Annotated[Cap, "largest importance weight"] = 20.0,
    anchor: Anchor = "rollout",
) -> Objective:
    """Drops tokens whose probability moved too far from the sampler's, by the binary KL divergence."""
    return _dppo(threshold, cap, anchor, kl=True)
