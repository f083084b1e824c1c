"""Advantage Reweighting and Lopti: damp the large gradients of improbable tokens, or let them move first.

    w_it = a · p_old,it + 1 − a
    adv_reweight  J = 1/Σ|o_i| Σ_i Σ_t [ w_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ]
    lopti         the same sum in two optimiser passes: over the tokens with p_old < eta, then over the others

In Lopti the improbable tokens, whose gradients are the largest, move the policy first; the probable ones learn on a
policy that has moved. Σ|o_i| counts every token in both passes; credit and old log-probs are computed once.
Defaults: clip 0.2/0.24, dual clip 10, k3 coefficient 0.001 (code). a is 0.2 in Advantage Reweighting alone and 0 in
Lopti alone, whose eta is 0.4; the authors' script for both has eta 0.5 and a 0.3.
Options: high_first reverses Lopti's order, the paper's ablation (a negative threshold in the authors' code).
Departures: log π_ref/π is bounded to ±20. The authors bound it to ±5 and k3 to 10, flat beyond: bounded_kl=True. The
mean is over the optimiser step (the authors' code: per micro-batch). An engine makes every pass over all minibatches,
empty ones included.
Reductions: a = 0, dual=None and equal lengths is GRPO with the same clip and beta. The losses of Lopti's passes add up
to Advantage Reweighting's.
"""

import dataclasses
from typing import Annotated

from torch import Tensor

from ..core.objective import Objective
from ..core.parts import K3, Clip, FixedBounds, GroupAdvantage, K3Within, ReferenceKl, Selection, TokenMean
from ..core.parts.weights import Affine, ProbabilityWeight
from ..core.ranges import Share, inside
from ..core.types import Batch
from .options import Beta, BoundedKl, Dual, High, Low
from .paper import Paper

PAPER = Paper(
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


@PAPER
def adv_reweight(
    *,
    low: Low = 0.2,
    high: High = 0.24,
    dual: Dual = 10.0,
    a: Annotated[Share, "strength of the reweighting; 0 switches it off"] = 0.2,
    beta: Beta = 1e-3,
    bounded_kl: BoundedKl = False,
) -> Objective:
    """Weighs tokens by a p_old + 1 − a, so that improbable ones weigh a little less."""
    estimator = K3Within(5.0, 10.0) if bounded_kl else K3()
    return Objective(
        GroupAdvantage(),
        Clip(FixedBounds(low, high), dual=dual),
        TokenMean(),
        weights=(ProbabilityWeight(Affine(a), old=True),),
        penalties=(ReferenceKl(beta, estimator),) if beta else (),
    )


@PAPER
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
    """Updates on improbable tokens first, then on the rest, in two optimiser passes."""
    whole = adv_reweight(low=low, high=high, dual=dual, a=a, beta=beta, bounded_kl=bounded_kl)
    passes = tuple(OldProbability(eta, below) for below in (not high_first, high_first))
    return dataclasses.replace(whole, passes=passes, weights=whole.weights if a else ())
