"""Advantage Reweighting: damp the large gradients of improbable tokens.

Paper: Do Not Let Low-Probability Tokens Over-Dominate in RL for LLMs (2505.12929); provenance: code.

    w_it = a · p_old,it + 1 − a
    J = 1/Σ|o_i| Σ_i Σ_t [ w_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ]

Defaults: a 0.2 alone (0.3 together with Lopti), clip 0.2/0.24, dual clip 10, k3 coefficient 0.001 (code; set-up:
temperature 0.7, groups of 8, Knights & Knaves with 3 to 7 people).
Departures: the authors' code bounds log π_ref/π to ±5 and k3 to 10, so that no token is drawn to the reference by more
than 12 times beta, and by nothing once k3 > 10: bounded_kl=True. Here only the log-ratio is bounded, to ±20.
Reductions: a = 0, dual=None and equal lengths is GRPO with the same clip and beta.
"""

from __future__ import annotations

from ..core.objective import Objective
from ..core.parts import K3, Clip, FixedBounds, GroupAdvantage, K3Within, ProbabilityWeight, ReferenceKl, TokenMean
from ..core.parts.weights import Affine
from ..core.ranges import AboveOne, Limit, NotNegative, Share
from .paper import Paper, published

PAPER = Paper("Do Not Let Low-Probability Tokens Over-Dominate in RL for LLMs", "2505.12929", "", "code")


@published(PAPER)
def adv_reweight(
    *,
    low: Share = 0.2,
    high: Limit = 0.24,
    dual: AboveOne | None = 10.0,
    a: Share = 0.2,
    beta: NotNegative = 1e-3,
    bounded_kl: bool = False,
) -> Objective:
    """Tokens weigh a p_old + 1 − a: the improbable ones a little less.

    Args:
        low: clip below.
        high: clip above.
        dual: dual clip for negative advantages; None switches it off.
        a: strength, 0 <= a <= 1.
        beta: coefficient of the k3 divergence from the reference; 0 asks for no reference.
        bounded_kl: log-ratios to the reference within ±5 and k3 at most 10, flat beyond, as in the authors' code.
    """
    estimator = K3Within(5.0, 10.0) if bounded_kl else K3()
    return Objective(
        name="adv_reweight",
        credit=GroupAdvantage(),
        surrogate=Clip(FixedBounds(low, high), dual=dual),
        weights=(ProbabilityWeight(Affine(a), old=True),),
        penalties=(ReferenceKl(beta, estimator),) if beta else (),
        aggregate=TokenMean(),
    )
