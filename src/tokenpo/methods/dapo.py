"""DAPO: decoupled clip and dynamic sampling.

Paper: DAPO (2503.14476), eq. 8 and 13; provenance: code.

    A_i = (R_i − mean_g R) / (std_g R + 1e-6)
    J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i),   at least dual · A_i where A_i < 0

Defaults: low 0.2, high 0.28, dual clip 10 (code). The soft overlong penalty is on when its two lengths are given (the
authors use 16384 + 4096 cache). Dynamic sampling (drop groups whose rewards are all equal, refill, with a cap) belongs
to the sampling loop: `rollout.dynamic_sampling` in a recipe of the embedded engine.
Reductions: with equal clips, equal lengths and dual=None it is GRPO.
"""

from __future__ import annotations

from ..base.errors import TokenPOError
from ..core.objective import Objective
from ..core.parts import Clip, FixedBounds, GroupAdvantage, SoftOverlong, TokenMean
from ..core.ranges import AboveOne, Count, Limit, Share
from .paper import Paper, published

PAPER = Paper(
    "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", "2503.14476", "", "code",
    code="verl 0.9.1:verl/trainer/ppo/core_algos.py",
)  # fmt: skip


@published(PAPER)
def dapo(
    *,
    low: Share = 0.2,
    high: Limit = 0.28,
    dual: AboveOne | None = 10.0,
    overlong_length: Count | None = None,
    overlong_cache: Count | None = None,
) -> Objective:
    """Token mean over the batch, a clip that leaves more room above, and a soft penalty on overlong responses.

    Args:
        low: clip below.
        high: clip above.
        dual: dual clip for negative advantages; None switches it off.
        overlong_length: L_max of the soft overlong penalty, tokens.
        overlong_cache: L_cache of the same; give both or neither.
    """
    if (overlong_length is None) != (overlong_cache is None):
        raise TokenPOError("dapo: the soft overlong penalty needs both overlong_length and overlong_cache")
    shaping = ()
    if overlong_length is not None and overlong_cache is not None:
        shaping = (SoftOverlong(overlong_length, overlong_cache),)
    return Objective(
        name="dapo",
        shaping=shaping,
        credit=GroupAdvantage(),
        surrogate=Clip(FixedBounds(low, high), dual=dual),
        aggregate=TokenMean(),
    )
