"""CISPO (section 3.1): the clip bounds the weight of a token and never cuts its gradient off.

    c_it = clip(r_it, 1−low, 1+high)
    J = 1/Σ|o_i| Σ_i Σ_t sg[c_it] · A_i · lp_it

Defaults: high 0.28 is a framework's, the paper tunes it; low 1.0 leaves the lower side open, as the paper does. With
absolute=True the cap is `high` itself, the way some frameworks write it (1 + high and high are easily confused).
Departures: the group's deviation has ddof 1 and eps 1e-6, as everywhere here.
Reductions: at lp = lp_old the gradient is DAPO's.
"""

from typing import Annotated

from ..core.objective import Objective
from ..core.parts import DetachedClip, FixedBounds, GroupAdvantage, TokenMean
from ..core.ranges import limit, require
from .options import Ceiling, Floor
from .paper import TRL, VERL, Paper


@Paper(
    "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention", "2506.13585", "code",
    code=f"{VERL}; {TRL}",
)  # fmt: skip
def cispo(
    *,
    high: Ceiling = 0.28,
    low: Floor = 1.0,
    absolute: Annotated[bool, "`high` is the cap itself, ratio ≤ high, which is ≥ 1"] = False,
) -> Objective:
    """The importance weight is clipped and detached, so every token keeps a gradient."""
    if absolute:
        require("cispo", "high", high, limit(1).because("as absolute=True makes it the cap itself"))
    return Objective(GroupAdvantage(), DetachedClip(FixedBounds(low, high - 1 if absolute else high)), TokenMean())
