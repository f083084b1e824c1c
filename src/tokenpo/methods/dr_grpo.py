"""Dr. GRPO (section 3): GRPO without its two biases.

    A_i = R_i − mean_g R
    J = 1/N Σ_i 1/L Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

Dividing by the deviation favours prompts that are too easy or too hard; dividing by |o_i| favours short right answers
and long wrong ones. Both are dropped.
Defaults: low = high = 0.2 (code). The constant L is the longest response allowed: engines give it as `Totals.length`;
`Totals.of` alone takes the longest response of the step.
Departures: the clip is that of the authors' framework, whose code was not read.
Reductions: with equal lengths |o_i| = L and unit deviations it is GRPO.
"""

from typing import Annotated

from ..core.objective import Objective
from ..core.parts import Clip, ConstantLength, FixedBounds, GroupAdvantage
from ..core.ranges import Positive
from .options import High, Low
from .paper import Paper


@Paper(
    "Understanding R1-Zero-Like Training: A Critical Perspective", "2503.20783", "code",
    code="sail-sg/understand-r1-zero@dfca49d:train_zero_math.py",
)  # fmt: skip
def dr_grpo(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    length: Annotated[Positive | None, "the constant L in tokens; None takes the step's `Totals.length`"] = None,
) -> Objective:
    """GRPO without division by the group's deviation or by the response's length."""
    return Objective(GroupAdvantage(std=False), Clip(FixedBounds(low, high)), ConstantLength(length))
