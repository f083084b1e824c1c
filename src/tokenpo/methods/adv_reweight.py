"""Advantage Reweighting: damp the large gradients of improbable tokens.

Paper: Do Not Let Low-Probability Tokens Over-Dominate in RL for LLMs (2505.12929); provenance: code.

    w_it = a · p_old,it + 1 − a
    J = 1/Σ|o_i| Σ_i Σ_t [ w_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ]

Defaults: a 0.2 alone (0.3 together with Lopti), clip 0.2/0.24, dual clip 10, k3 coefficient 0.001 (code; set-up:
temperature 0.7, groups of 8, Knights & Knaves with 3 to 7 people).
Reductions: a = 0, dual=None and equal lengths is GRPO with the same clip and beta.
"""

from __future__ import annotations

from ..core.objective import Objective
from ..core.parts import Clip, FixedBounds, GroupAdvantage, ProbabilityWeight, ReferenceKl, TokenMean
from ..core.parts.weights import Affine
from ..core.ranges import AboveOne, Limit, NotNegative, Share
from .paper import Paper, published

PAPER = Paper("Do Not Let Low-Probability Tokens Over-Dominate in RL for LLMs", "2505.12929", "", "code")


@published(PAPER)
def adv_reweight(
    *, low: Share = 0.2, high: Limit = 0.24, dual: AboveOne | None = 10.0, a: Share = 0.2, beta: NotNegative = 1e-3
) -> Objective:
    """Tokens weigh a p_old + 1 − a: the improbable ones a little less.

    Args:
        low: clip below.
        high: clip above.
        dual: dual clip for negative advantages; None switches it off.
        a: strength, 0 <= a <= 1.
        beta: coefficient of the k3 divergence from the reference; 0 asks for no reference.
    """
    return Objective(
        name="adv_reweight",
        credit=GroupAdvantage(),
        surrogate=Clip(FixedBounds(low, high), dual=dual),
        weights=(ProbabilityWeight(Affine(a), old=True),),
        penalties=(ReferenceKl(beta),) if beta else (),
        aggregate=TokenMean(),
    )
