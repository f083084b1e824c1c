"""SDAR: GRPO plus a pull toward the tokens that an informed teacher prefers, gated by the strength of its preference.

    x_it = log q(y_it) − lp_it,   q the policy with more in its context      (`teacher_logprob`)
    J = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − coef · sg[σ(gate x_it)] x_it ]

A_i is GRPO's.
Expected gradient of the pull, on policy: it raises E σ(gate x) at the sampled states, a bounded reward for what the
teacher prefers; its value is no divergence. A token is never pushed down, and at x = 0 the pull is half of the largest.
Defaults: gate 5 and the token mean (code); coef 0.1 and the clip 0.2/0.2 (ours: the code's coef is 0, which is off).
Departures: one aggregation for both terms. log-ratios are within ±20, and flat beyond.
Reductions: coef = 0 is GRPO under a token mean.
"""

from typing import Annotated

from torch import Tensor

from ..core.objective import Objective
from ..core.parts import Clip, Estimator, FixedBounds, GroupAdvantage, TeacherKl, TokenMean
from ..core.ranges import NotNegative
from .options import High, Low
from .paper import Paper
from .rlsd import SWIFT

Gate = Annotated[NotNegative, "steepness of the gate, per nat"]


class Gated(Estimator):
    """sg[σ(gate · x)] · x."""

    stationary = False
    gate: Gate

    def __call__(self, x: Tensor) -> Tensor:
        return (self.gate * x.detach()).sigmoid() * x


@Paper("Self-Distilled Agentic RL (SDAR)", "2605.15155", "code", "a framework was read, not the paper", code=SWIFT)
def sdar(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    coef: Annotated[NotNegative, "coefficient of the pull toward the teacher; 0 needs no teacher"] = 0.1,
    gate: Gate = 5.0,
) -> Objective:
    """GRPO with a token mean plus a gated pull toward the tokens that an informed teacher prefers."""
    penalties = (TeacherKl(coef, Gated(gate)),) if coef else ()
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), penalties=penalties)
