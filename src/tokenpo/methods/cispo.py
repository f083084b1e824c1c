"""CISPO: the clip bounds the weight of a token and never cuts its gradient off.

Paper: MiniMax-M1 (2506.13585), section 3.1; provenance: code.

    c_it = clip(r_it, 1−low, 1+high)
    J = 1/Σ|o_i| Σ_i Σ_t sg[c_it] · A_i · lp_it

Defaults: high 0.28 is a framework's, the paper tunes it; low 1.0 leaves the lower side open, as the paper does. With
absolute=True the cap is `high` itself, the way some frameworks write it (1 + high and high are easily confused).
Departures: none known. The group's deviation has ddof 1 and eps 1e-6, as everywhere here.
Reductions: at lp = lp_old the gradient is DAPO's.
"""

from __future__ import annotations

from ..core.objective import Objective
from ..core.parts import DetachedClip, FixedBounds, GroupAdvantage, TokenMean
from ..core.ranges import Limit, Share, limit, require
from .paper import Paper, published

PAPER = Paper(
    "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention", "2506.13585", "", "code",
    code="verl 0.9.1:verl/trainer/ppo/core_algos.py; trl 1.16.0:trl/trainer/grpo_trainer.py",
)  # fmt: skip


@published(PAPER)
def cispo(*, high: Limit = 0.28, low: Share = 1.0, absolute: bool = False) -> Objective:
    """The importance weight is clipped and detached, so every token keeps a gradient.

    Args:
        high: cap of the weight, ratio ≤ 1 + high.
        low: floor of the weight, ratio ≥ 1 − low; 1 leaves it open.
        absolute: `high` is the cap itself, ratio ≤ high, which is ≥ 1.
    """
    if absolute:
        require("cispo", "high", high, limit(1).because("as absolute=True makes it the cap itself"))
    return Objective(
        name="cispo",
        credit=GroupAdvantage(),
        surrogate=DetachedClip(FixedBounds(low, high - 1 if absolute else high)),
        aggregate=TokenMean(),
    )
