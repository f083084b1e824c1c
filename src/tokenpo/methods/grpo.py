"""GRPO (eq. 3): group-relative policy optimisation.

    A_i = (R_i − mean_g R) / (std_g R + 1e-6)
    J = 1/N Σ_i 1/|o_i| Σ_t [ min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ]

Defaults: low = high = 0.2 and ddof 1 as in the frameworks' code; beta = 0, because verifiable rewards are usually
trained without a reference (the paper's beta is 0.04).
Departures: a group of one learns nothing; verl and trainers built on it take its reward over 1 + 1e-6 for its
advantage. verl adds eps 1e-6 to the deviation, TRL 1e-4.
Reductions: DAPO with equal clips, equal lengths and no dual clip is GRPO; TR-GRPO with lower = upper = 1 is GRPO.
"""

from typing import Annotated

from ..core.objective import Objective
from ..core.parts import Clip, FixedBounds, GroupAdvantage, ReferenceKl, SequenceMean
from ..core.ranges import Limit, Share
from .options import Beta
from .paper import TRL, VERL, Paper


@Paper("DeepSeekMath: Pushing the Limits of Mathematical Reasoning", "2402.03300", "code", code=f"{VERL}; {TRL}")
def grpo(
    *,
    low: Annotated[Share, "clip below, ratio ≥ 1 − low"] = 0.2,
    high: Annotated[Limit, "clip above, ratio ≤ 1 + high"] = 0.2,
    beta: Beta = 0.0,
) -> Objective:
    """Every token of a response gets the response's group-normalised reward."""
    penalties = (ReferenceKl(beta),) if beta else ()
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), penalties=penalties)
