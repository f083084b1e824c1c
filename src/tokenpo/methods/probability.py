"""Weights and passes by the probability of a token."""

import dataclasses
from typing import Annotated, Literal

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.parts.credit import GroupAdvantage
from ..core.parts.entropy import entropy_of
from ..core.parts.loss import K3, K3Within, ReferenceKl, TokenMean
from ..core.parts.part import BatchSignal, Look, Selection
from ..core.parts.surrogate import Clip, FixedBounds
from ..core.parts.weights import Affine, Drop, NormalisedWeight, ProbabilityWeight
from ..core.ranges import Share, inside
from ..core.types import Batch
from .options import Beta, BoundedKl, Dual, High, Low
from .paper import Paper

AR_LOPTI = Paper(
    "Do Not Let Low-Probability Tokens Over-Dominate in RL for LLMs",
    "2505.12929",
    "code",
    code="zhyang2226/AR-Lopti@cbeb333:verl/trainer/ppo/core_algos.py; "
    "zhyang2226/AR-Lopti@cbeb333:verl/trainer/ppo/ray_trainer.py",
)
Between = Annotated[float, inside(0, 1).because("or one of the passes would be empty")]


class OldProbability(Selection):
    """Tokens whose probability under the old policy is below a threshold, or those where it is not."""

    threshold: Between
    below: bool = True

    def __call__(self, batch: Batch) -> Tensor:
        return (batch.rollouts.old_logprob.exp() < self.threshold) == self.below


@AR_LOPTI
def adv_reweight(
    *,
    low: Low = 0.2,
    high: High = 0.24,
    dual: Dual = 10.0,
    a: Annotated[Share, "strength of the reweighting; 0 switches it off"] = 0.2,
    beta: Beta = 1e-3,
    bounded_kl: BoundedKl = False,
) -> Objective:
    """Weighs tokens by a p_old + 1 − a, so that improbable ones weigh a little less.

        w_it = a · p_old,it + 1 − a
        J = 1/Σ|o_i| Σ_i Σ_t [ w_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ]

    Defaults: as in the code.
    Departures: the authors bound log π_ref/π by ±5 and k3 by 10, flat beyond: bounded_kl=True.
    Reductions: a = 0, dual=None and equal lengths is GRPO with the same clip and beta.
    """
    estimator = K3Within(5.0, 10.0) if bounded_kl else K3()
    return Objective(
        GroupAdvantage(),
        Clip(FixedBounds(low, high), dual=dual),
        TokenMean(),
        weights=(ProbabilityWeight(Affine(a), old=True),),
        penalties=(ReferenceKl(beta, estimator),) if beta else (),
    )


@AR_LOPTI
def lopti(
    *,
    eta: Annotated[Between, "probability that divides the tokens between the passes"] = 0.4,
    a: Annotated[Share, "Advantage Reweighting's strength; 0 weighs all tokens alike"] = 0.0,
    high_first: Annotated[bool, "update on the probable tokens first"] = False,
    low: Low = 0.2,
    high: High = 0.24,
    dual: Dual = 10.0,
    beta: Beta = 1e-3,
    bounded_kl: BoundedKl = False,
) -> Objective:
    """Updates on improbable tokens first, then on the rest, in two optimiser passes.

        w_it = a · p_old,it + 1 − a
        J = 1/Σ|o_i| Σ_i Σ_t s_it [ w_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ]
        first pass: s_it = 1[p_old,it < eta],   second pass: s_it = 1[p_old,it ≥ eta]

    Defaults: as Advantage Reweighting's, with a 0 and eta 0.4 (code). The authors' script for both has a 0.3, eta 0.5.
    Options: `high_first` swaps the passes, the paper's ablation (a negative threshold in the authors' code).
    Departures: `bounded_kl` as in Advantage Reweighting. An engine makes every pass over all minibatches, empty ones
    included.
    Reductions: the losses of the passes add up to Advantage Reweighting's.
    """
    whole = adv_reweight(low=low, high=high, dual=dual, a=a, beta=beta, bounded_kl=bounded_kl)
    passes = tuple(OldProbability(eta, below) for below in (not high_first, high_first))
    return dataclasses.replace(whole, passes=passes, weights=whole.weights if a else ())


Unlikely = Annotated[Share, "a token is unlikely below this probability"]
Quantile = Annotated[Share, "quantile of the entropies of unlikely tokens in right responses; tokens below are dropped"]


class Spurious(BatchSignal):
    """1.0 at unlikely tokens of right responses whose entropy is low among such tokens."""

    prob: Unlikely
    quantile: Quantile
    current: bool

    @property
    def reads(self) -> set[str]:
        return {entropy_of(current=self.current)}

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        logprob = batch.policy.logprob if self.current else batch.rollouts.old_logprob
        entropy = batch.need(entropy_of(current=self.current))
        unlikely = batch.mask & (batch.credit.advantage > 0) & (logprob.exp() < self.prob)
        if not unlikely.any():
            return torch.zeros_like(entropy)
        threshold = masked.quantile(entropy[unlikely], self.quantile)
        return (unlikely & (entropy < threshold)).to(entropy.dtype)


@Paper(
    "STAPO: Stabilizing Reinforcement Learning for LLMs by Silencing Rare Spurious Tokens",
    "2602.15620",
    "paper",
    "which policy's probabilities and entropies, and the batch of the quantile, are our reading",
)
def stapo(
    *,
    prob: Unlikely = 0.002,
    quantile: Quantile = 0.75,
    low: Low = 0.2,
    high: High = 0.28,
    policy: Annotated[Literal["current", "old"], "the policy of the probabilities and entropies"] = "current",
) -> Objective:
    """Drops unlikely tokens of right responses where the policy was sure of another token.

        rare_it = 1[A_i > 0 and p_it < prob]
        spurious_it = rare_it · 1[H_it < the quantile of H over the tokens with rare = 1]
        J = 1/Σ kept Σ_i Σ_t kept_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i),   kept = 1 − spurious

    An unlikely token where the policy was sure has a large gradient, though it earned none of the reward.
    Defaults: prob 0.002, quantile 0.75 (paper); clip 0.2/0.28 as in DAPO. The denominator counts the tokens that are
    kept.
    Departures: p and H are the current policy's, over the optimiser step; policy="old" takes the old policy's.
    Reductions: prob = 0 is DAPO with dual=None.
    """
    weight = NormalisedWeight.of(Drop(Spurious(prob, quantile, policy == "current")))
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), weights=(weight,))
