"""DAPO (eq. 8 and 13): decoupled clip and dynamic sampling.

    A_i = (R_i − mean_g R) / (std_g R + 1e-6)
    J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i),   at least dual · A_i where A_i < 0

Defaults: low 0.2, high 0.28, dual clip 10 (code). The soft overlong penalty is on when both its lengths are given (the
authors use 16384 + 4096 cache). Dynamic sampling, which refills groups whose rewards are all equal, belongs to the
sampling loop: `rollout.dynamic_sampling` in a recipe of the embedded engine.
Reductions: with equal clips, equal lengths and dual=None it is GRPO.
"""

from typing import Annotated

from ..base.errors import TokenPOError
from ..core.objective import Objective
from ..core.parts import Clip, FixedBounds, GroupAdvantage, SoftOverlong, TokenMean
from ..core.ranges import Count
from .options import Dual, High, Low
from .paper import VERL, Paper


@Paper("DAPO: An Open-Source LLM Reinforcement Learning System at Scale", "2503.14476", "code", code=VERL)
def dapo(
    *,
    low: Low = 0.2,
    high: High = 0.28,
    dual: Dual = 10.0,
    overlong_length: Annotated[Count | None, "L_max of the soft overlong penalty, tokens"] = None,
    overlong_cache: Annotated[Count | None, "L_cache of the same; give both or neither"] = None,
) -> Objective:
    """Token mean over the batch, a clip that leaves more room above, and a soft penalty on overlong responses."""
    if (overlong_length is None) != (overlong_cache is None):
        raise TokenPOError("dapo: the soft overlong penalty needs both overlong_length and overlong_cache")
    shaping = ()
    if overlong_length is not None and overlong_cache is not None:
        shaping = (SoftOverlong(overlong_length, overlong_cache),)
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high), dual=dual), TokenMean(), shaping=shaping)
