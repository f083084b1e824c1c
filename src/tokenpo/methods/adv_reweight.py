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

from typing import Annotated

from ..core.objective import Objective
from ..core.parts import K3, Clip, FixedBounds, GroupAdvantage, K3Within, ProbabilityWeight, ReferenceKl, TokenMean
from ..core.parts.weights import Affine
from ..core.ranges import Share
from .options import Beta, BoundedKl, Dual, High, Low
from .paper import Paper


@Paper(
    "Do Not Let Low-Probability Tokens Over-Dominate in RL for LLMs", "2505.12929", "code",
    code="zhyang2226/AR-Lopti@cbeb333:verl/trainer/ppo/core_algos.py; "
    "zhyang2226/AR-Lopti@cbeb333:verl/trainer/ppo/ray_trainer.py",
)  # fmt: skip
def adv_reweight(
    *,
    low: Low = 0.2,
    high: High = 0.24,
    dual: Dual = 10.0,
    a: Annotated[Share, "strength"] = 0.2,
    beta: Beta = 1e-3,
    bounded_kl: BoundedKl = False,
) -> Objective:
    """Tokens weigh a p_old + 1 − a: the improbable ones a little less."""
    estimator = K3Within(5.0, 10.0) if bounded_kl else K3()
    return Objective(
        GroupAdvantage(),
        Clip(FixedBounds(low, high), dual=dual),
        TokenMean(),
        weights=(ProbabilityWeight(Affine(a), old=True),),
        penalties=(ReferenceKl(beta, estimator),) if beta else (),
    )
