"""HAPO: heterogeneous adaptive policy optimisation."""

from typing import Annotated, Literal

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.parts.credit import GroupAdvantage
from ..core.parts.entropy import AdaptiveTemperature, CurrentEntropyScore, Heat, OldEntropyScore
from ..core.parts.loss import TokenMean
from ..core.parts.part import CreditStage, Weight
from ..core.parts.surrogate import Bounds, Clip, FixedBounds
from ..core.ranges import SHARE, Limit, NotNegative, Share, require
from ..core.types import Batch, Rollouts, Trust
from .options import Dual, OfPolicy
from .paper import Paper

Strength = Annotated[float, SHARE.because("or advantages would change sign")]


class TokenGroupAdvantage(CreditStage):
    """(R_i − mean) / (std + eps), mean and population deviation over the group's tokens: long responses count more.

    A group in which any |A| reaches `fallback` gets GRPO's advantage instead; with `padding` that test includes a
    reward of 0, which padding has.
    """

    fallback: Limit = 5.0
    eps: NotNegative = 1e-6
    padding: bool = False

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = rollouts.reward + bonus
        mean, std = groups.mean_std(reward, weight=rollouts.mask.sum(1), correction=0)
        advantage = torch.where(groups.varied(reward), (reward - mean) / (std + self.eps), 0)
        largest = groups.extremes(advantage.abs())[1]
        if self.padding:
            largest = torch.maximum(largest, mean.abs() / (std + self.eps))
        extreme = largest >= self.fallback
        plain = GroupAdvantage(eps=self.eps).of(groups, reward)
        return torch.where(extreme, plain, advantage)[:, None].expand(rollouts.mask.shape)


class AdaptiveBounds(Bounds):
    """More room below for sure tokens, more room above for uncertain ones."""

    low: Share
    high: Limit
    alpha: NotNegative
    score: OldEntropyScore | CurrentEntropyScore

    def __post_init__(self) -> None:
        super().__post_init__()
        # The widest interval these bounds can become; the narrowest is the base itself.
        require(type(self).__name__, "low · (1 + alpha)", self.low * (1 + self.alpha), SHARE)

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        h = self.alpha * batch.signal(self.score)
        return 1 - self.low * (1 - h.clamp(max=0)), 1 + self.high * (1 + h.clamp(min=0))


class Redistribution(Weight):
    """1 + beta ĥ outside the neutral zone for uncertain tokens and inside it for sure ones; 1 elsewhere."""

    beta: Strength
    score: OldEntropyScore | CurrentEntropyScore

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        h = batch.signal(self.score)
        low, high = (1 + trust.lower) / 2, (1 + trust.upper) / 2
        neutral = (trust.ratio > low) & (trust.ratio < high)
        return 1 + self.beta * h * (neutral == (h <= 0))


@Paper(
    "From Uniform to Heterogeneous: Tailoring Policy Optimization to Every Token's Nature",
    "2509.16591",
    "code",
    code="starriver030515/HAPO@7671dde:verl/trainer/ppo/core_algos.py",
)
def hapo(
    *,
    low: Annotated[Share, "base clip below"] = 0.2,
    high: Annotated[Limit, "base clip above"] = 0.2,
    dual: Dual = 10.0,
    quantile: Annotated[Share, "pivot of the entropy score"] = 0.8,
    tau: Annotated[Heat, "adaptive temperature while sampling; 0 switches it off"] = 0.05,
    token_mean_advantage: Annotated[bool, "mean and deviation over the group's tokens; False takes GRPO's"] = True,
    beta: Annotated[Strength, "differential advantage redistribution; 0 switches it off"] = 1.0,
    alpha: Annotated[NotNegative, "asymmetric adaptive clipping; 0 switches it off"] = 1.0,
    sign: Annotated[Literal["paper", "released"], "entropy score of the paper, or of the released code"] = "paper",
    entropy: OfPolicy = "old",
    fallback: Annotated[
        Literal["tokens", "released"], "where |A| ≥ 5 is tested: at tokens, or at padding of reward 0 too"
    ] = "tokens",
) -> Objective:
    """Temperature, advantage and clip bounds of a token follow its entropy.

        ĥ   = x / max x where x > 0, else x / |min x|,   x = log H − the 0.8 quantile of log H, over the batch's tokens
        (1) T_t = T (1 + tau ĥ_t) while sampling, T the run's temperature; max, min and quantile of the batch before
        (2) A = (R_i − mean) / (std + 1e-6), mean and std (ddof 0) over the group's tokens; GRPO's A where any |A| ≥ 5
        (3) A ← A (1 + beta ĥ) outside the neutral zone (1 − low/2, 1 + high/2) for ĥ > 0, and inside it for ĥ ≤ 0
        (4) low  ← low (1 − alpha ĥ) where ĥ ≤ 0;   high ← high (1 + alpha ĥ) where ĥ > 0
        J = 1/Σ|o_i| Σ_i Σ_t min(r A, clip(r, 1−low, 1+high) A),   at least dual · A where A < 0

    (3) uses the low and high of (4). tau=0, token_mean_advantage=False, beta=0 and alpha=0 switch the parts off.
    Defaults: as in the authors' scripts.
    Departures: ĥ is computed once over the rollout batch from H_old. entropy="current" takes the current policy over
    the optimiser step.
    sign="released" divides negative ĥ by min ĥ, as the released code does: then no ĥ is negative, and the least
    uncertain token gets +1.
    fallback="released" looks for |A| ≥ 5 at padding too, where the reward is 0, as the released code does. A group
    whose rewards lie far from 0 then falls back to GRPO.
    Log-probabilities and entropies are those at T, not at T_t, as in the authors' code; rollout.correction can correct
    for the difference.
    Reductions: all four off is DAPO with GRPO's clip.
    """
    released = sign == "released"
    kind = {"old": OldEntropyScore, "current": CurrentEntropyScore}[entropy]
    score = kind(quantile, released)
    return Objective(
        TokenGroupAdvantage(padding=fallback == "released") if token_mean_advantage else GroupAdvantage(),
        Clip(AdaptiveBounds(low, high, alpha, score) if alpha else FixedBounds(low, high), dual=dual),
        TokenMean(),
        weights=(Redistribution(beta, score),) if beta else (),
        temperature=AdaptiveTemperature(tau, quantile, released) if tau else None,
    )
