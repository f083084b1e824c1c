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
    about="""
        cov_t = (A_t − mean A)(lp_t − mean lp)      over all tokens of the optimiser step, current lp
        Clip-Cov: among tokens that are not clipped and have cov_low < cov < cov_high, a uniformly random
                  max(1, int(fraction · n)) get weight 0; the denominator stays
        KL-Cov:   J = 1/Σ|o_i| Σ r_it A_i, without a clip; the max(1, int(fraction · n)) tokens with the largest cov
                  pay coef · |lp − lp_old|      (section 4)

    Defaults: Clip-Cov fraction 2e-4, 1 < cov < 5, clip 1/1 (the authors' script); KL-Cov coef 1, fraction 2e-3 (their
    7B run; 2e-4 for 32B).
    Departures: both select over the whole optimiser step; the authors' code selects per device and micro-batch.
    KL-Cov needs several updates per rollout: it is idle while |lp − lp_old| < 1e-5 nats; two engines may differ by
    that.
    """,
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
        return torch.zeros_like(batch.mask).flatten().index_fill_(0, eligible[order], True).view_as(batch.mask)


class TopCovariant(BatchSignal):
    """True at the tokens with the largest covariance; of equal ones the earlier are taken."""

    fraction: Fraction

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        tokens = int(batch.mask.sum())
        cov = covariance(batch.credit.advantage, batch.policy.logprob, tokens)
        top = masked.largest(cov.flatten(), batch.mask.flatten(), max(1, int(self.fraction * tokens)))
        return torch.zeros_like(batch.mask).flatten().index_fill_(0, top, True).view_as(batch.mask)


@PAPER
def clip_cov(
    *,
    low: Low = 1.0,
    high: High = 1.0,
    fraction: Annotated[Fraction, "share of all tokens that are dropped; one token at least"] = 2e-4,
    cov_low: Annotated[BelowInfinity, "lower end of the band of covariances; -inf is none"] = 1.0,
    cov_high: Annotated[Number, "upper end, > cov_low; inf is none"] = 5.0,
) -> Objective:
    """Takes the gradient from a few random tokens with high covariance."""
    drop = Drop(RandomCovariant(fraction, cov_low, cov_high))
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), weights=(drop,))


@PAPER
def kl_cov(
    *,
    fraction: Annotated[Fraction, "share of all tokens that are penalised; one token at least"] = 2e-3,
    coef: Annotated[NotNegative, "coefficient of |lp − lp_old| on these tokens"] = 1.0,
) -> Objective:
    """Penalises the tokens with the highest covariance for leaving the old policy."""
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


@Paper(
    "On the Entropy Dynamics in Reinforcement Fine-Tuning of Large Language Models",
    "2602.03392",
    "code",
    "the paper was not read",
    code="pan-x-c/Trinity-RFT@e8be774:trinity/algorithm/advantage_fn/clipb_advantage.py",
)
def clip_b(*, mu: Spread = 2.5, low: Low = 0.2, high: High = 0.2) -> Objective:
    """Drops the tokens of wrong responses whose push would lower the entropy most.

        S_it = p (H + log p) of the old policy;   pushing a token down changes the entropy along S
        drop_it where A_i < 0 and S_it − mean S < −mu std S,   mean and std (ddof 0) over the batch's tokens
        J = 1/Σ|o_i| Σ_i Σ_t (1 − drop_it) min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    Defaults: mu 2.5 (code), clip 0.2/0.2.
    Departures: dropped tokens count in the denominator; in the code they leave it.
    Reductions: mu = inf is DAPO with that clip.
    """
    drop = Drop(Draining(EntropyShift(), mu))
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), weights=(drop,))
