"""Clip-Cov and KL-Cov: weaken the update of the few tokens that make entropy collapse."""

import math
from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.parts import (
    Anchor,
    BatchSignal,
    Clip,
    Drop,
    FixedBounds,
    GroupAdvantage,
    Look,
    Selection,
    Signal,
    TokenMean,
    Unclipped,
)
from ..core.ranges import Fraction, Limit, NotNegative, Number, above, numbers_where
from ..core.types import Batch, Rollouts
from .options import High, Low
from .paper import Paper

PAPER = Paper(
    "The Entropy Mechanism of Reinforcement Learning for Reasoning Language Models",
    "2505.22617",
    "code",
    code="PRIME-RL/Entropy-Mechanism-of-RL@8850579:verl/trainer/ppo/core_algos.py",
)
BelowInfinity = Annotated[float, numbers_where("a number below inf", lambda x: x < math.inf)]


@torch.no_grad()
def covariance(advantage: Tensor, logprob: Tensor, count: Tensor | int) -> Tensor:
    """(A_t − mean A)(lp_t − mean lp), without gradient; [N, T].

    Args:
        advantage, logprob: [N, T], 0 at tokens that do not count, such as padding; their covariance is meaningless.
        count: number of tokens that count.
    """
    count = max(1, int(count))
    return (advantage - advantage.sum() / count) * (logprob - logprob.sum() / count)


def _at(places: Tensor, mask: Tensor) -> Tensor:
    """[N, T] bool, true at the `places` [M] of the flattened mask."""
    return torch.zeros_like(mask).flatten().index_fill_(0, places, True).view_as(mask)


class RandomCovariant(BatchSignal):
    """True at a few tokens, drawn uniformly from the unclipped ones with cov_low < cov < cov_high."""

    draws = True
    fraction: Fraction
    cov_low: BelowInfinity
    cov_high: Number

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(cov_high=above(self.cov_low).because("the lower end of the band"))

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        tokens = int(batch.mask.sum())
        cov = covariance(batch.credit.advantage, batch.policy.logprob, tokens)
        inside = (cov > self.cov_low) & (cov < self.cov_high)
        eligible = (batch.mask & inside & ~trust().clipped).flatten().nonzero()[:, 0]
        count = max(1, int(self.fraction * tokens))
        order = torch.randperm(eligible.numel(), generator=generator)[:count].to(eligible.device)
        return _at(eligible[order], batch.mask)


class TopCovariant(BatchSignal):
    """True at the tokens with the largest covariance; of equal ones the earlier are taken."""

    fraction: Fraction

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        tokens = int(batch.mask.sum())
        cov = covariance(batch.credit.advantage, batch.policy.logprob, tokens)
        return _at(masked.largest(cov.flatten(), batch.mask.flatten(), max(1, int(self.fraction * tokens))), batch.mask)


@PAPER
def clip_cov(
    *,
    low: Low = 1.0,
    high: High = 1.0,
    fraction: Annotated[Fraction, "share of all tokens that are dropped; one token at least"] = 2e-4,
    cov_low: Annotated[BelowInfinity, "lower end of the band of covariances; -inf is none"] = 1.0,
    cov_high: Annotated[Number, "upper end, > cov_low; inf is none"] = 5.0,
) -> Objective:
    """Removes the gradient of a few random tokens with high covariance.

        cov_t = (A_t − mean A)(lp_t − mean lp)      over the n tokens of the optimiser step, current lp
        drop  = max(1, int(fraction · n)) tokens, drawn uniformly from the unclipped with cov_low < cov < cov_high
        J = 1/Σ|o_i| Σ_i Σ_t (1 − drop_it) min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)      (section 4)

    Defaults: as in the authors' script.
    """
    drop = Drop(RandomCovariant(fraction, cov_low, cov_high))
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), weights=(drop,))


@PAPER
def kl_cov(
    *,
    fraction: Annotated[Fraction, "share of all tokens that are penalised; one token at least"] = 2e-3,
    coef: Annotated[NotNegative, "coefficient of |lp − lp_old| on these tokens"] = 1.0,
) -> Objective:
    """Penalises the tokens with the highest covariance for leaving the old policy.

        cov_t = (A_t − mean A)(lp_t − mean lp)      over the n tokens of the optimiser step, current lp
        top_t = 1 at the max(1, int(fraction · n)) tokens with the largest cov
        J = 1/Σ|o_i| Σ_i Σ_t [ r_it A_i − coef · top_it |lp − lp_old|_it ],   without a clip      (section 4)

    Defaults: coef 1, fraction 2e-3 (the authors' 7B run; 2e-4 for 32B).
    The penalty is 0 while |lp − lp_old| < 1e-5 nats.
    """
    return Objective(GroupAdvantage(), Unclipped(), TokenMean(), penalties=(Anchor(coef, TopCovariant(fraction)),))


class EntropyShift(Signal):
    """(S − mean) / std of S = p_old (H_old + lp_old) over the tokens of the rollout batch, ddof 0; 0 if std < 1e-12."""

    reads = {"old_entropy"}

    def __call__(self, rollouts: Rollouts) -> Tensor:
        shift = rollouts.old_logprob.exp() * (rollouts.need("old_entropy") + rollouts.old_logprob)
        centred = shift.double() - masked.mean(shift.double(), rollouts.mask)
        std = masked.mean(centred.square(), rollouts.mask).sqrt()
        return torch.where(std < 1e-12, 0.0, centred / std.clamp(min=1e-12)).to(shift.dtype)


Spread = Annotated[Limit, "deviations below the mean from which a token is dropped; inf drops none"]


class Draining(Selection):
    """Tokens with A < 0 whose shift lies more than mu deviations below the mean."""

    shift: EntropyShift
    mu: Spread

    def __call__(self, batch: Batch) -> Tensor:
        return (batch.credit.advantage < 0) & (batch.signal(self.shift) < -self.mu)


DYNAMICS = Paper(
    "On the Entropy Dynamics in Reinforcement Fine-Tuning of Large Language Models",
    "2602.03392",
    "code",
    "the paper was not read",
    code="pan-x-c/Trinity-RFT@e8be774:trinity/algorithm/advantage_fn/clipb_advantage.py; "
    "pan-x-c/Trinity-RFT@e8be774:trinity/algorithm/advantage_fn/clipv_advantage.py; "
    "hiyuchang/Trinity-RFT@1bff739:examples/entropy/clipv_dp_actor.py",
)


@DYNAMICS
def clip_b(*, mu: Spread = 2.5, low: Low = 0.2, high: High = 0.2) -> Objective:
    """Drops the tokens of wrong responses whose push would lower the entropy most.

        S_it = p (H + log p),   of the old policy; pushing a token down changes the entropy along S
        drop_it = 1[A_i < 0 and S_it − mean S < −mu std S (ddof 0)],   over the rollout batch
        J = 1/Σ|o_i| Σ_i Σ_t (1 − drop_it) min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    Defaults: as in the code.
    Departures: dropped tokens count in the denominator; in the code they leave it.
    Reductions: mu = inf is DAPO with that clip.
    """
    drop = Drop(Draining(EntropyShift(), mu))
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), weights=(drop,))


class Sharpening(BatchSignal):
    """True at the tokens with A < 0 and D > mu std D, at most `fraction` of all; D = entropy_drift − p (H + log p)."""

    reads = {"entropy", "entropy_drift"}
    mu: Limit
    fraction: Fraction

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        logprob, mask = batch.policy.logprob.double(), batch.mask
        excess = batch.need("entropy_drift") - logprob.exp() * (batch.need("entropy") + logprob)
        std = masked.mean((excess - masked.mean(excess, mask)).square(), mask).sqrt()
        beyond = mask & (batch.credit.advantage < 0) & (std >= 1e-12) & (excess > self.mu * std)
        most = max(1, int(self.fraction * int(mask.sum())))
        return _at(masked.largest(excess.flatten(), beyond.flatten(), most), mask)


@DYNAMICS
def clip_v(
    *,
    mu: Annotated[Spread, "deviations above 0 from which a token is dropped; inf drops none"] = 2.0,
    fraction: Annotated[Fraction, "largest share of all tokens that is dropped; one token at least"] = 1e-4,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Drops the few tokens of wrong responses that lower the entropy most, relative to the expected change.

        D_it = Σ_v p_v² (H + log p_v) − p (H + log p),   v over the vocabulary: the expected change less this token's
        drop = of the n tokens with A_i < 0 and D_it > mu std D (ddof 0),
               the min(n, max(1, int(fraction · all tokens))) with the largest D
        J = 1/Σ|o_i| Σ_i Σ_t (1 − drop_it) min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    Defaults: mu 2, fraction 1e-4 (the class in the code; its registered mu, the example's too, is 8.5); clip 0.2/0.2.
    Departures: as Clip_B's; and this takes the current policy over the optimiser step, the code the policy before the
    update, over the rollout batch.
    Reductions: mu = inf is DAPO with that clip.
    """
    drop = Drop(Sharpening(mu, fraction))
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), weights=(drop,))
