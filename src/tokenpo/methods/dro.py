"""DRO: log-likelihood weighted by the advantage, with a squared log-ratio in place of ratio and clip.

    J = 1/Σ|o_i| Σ_i Σ_t [ A_i lp_it − beta/2 (lp_it − lp_old,it)² ]

Its gradient is (A_i − beta log r_it) ∇lp_it: the push on a token ends where its log-ratio is A/beta.
Defaults: beta 0.05, the example of Tinker's documentation; verl has none and asks for it. The token mean is verl's.
Departures: the advantage is GRPO's; the method's is soft, which Tinker leaves to its user and verl to its estimators.
Tinker compares with the sampler's log-probabilities and sums over tokens; it names Kimi k1.5 (2501.12599) beside the
paper. verl's correction for the sampler weighs the square too; here it weighs the first term alone. Log-ratios stay
within ±20.
Reductions: beta = 0 is REINFORCE with GRPO's advantage. On the first update the square is idle.
"""

from typing import Annotated

from torch import Tensor

from ..core.objective import Objective
from ..core.ops.ratio import k2
from ..core.parts import GroupAdvantage, LogLikelihood, Penalty, Ratio, TokenMean
from ..core.ranges import NotNegative
from ..core.types import Batch, Trust
from .paper import VERL, Paper


class Regularised(LogLikelihood):
    """A · lp next to a penalty on the log-ratio, so the batch need not be on-policy."""

    assumes_on_policy = False


class ToOld(Penalty):
    """beta/2 · (lp − lp_old)²."""

    idle_on_policy = True
    beta: NotNegative

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return self.beta * k2(Ratio.log(batch))


@Paper(
    "Offline Regularised Reinforcement Learning for Large Language Models Alignment",
    "2405.19107",
    "code",
    "the papers were not read, two frameworks were; the advantage is not the method's soft one; beta is an example's",
    code=VERL,
)
def dro(
    *, beta: Annotated[NotNegative, "coefficient of half the squared log-ratio to the old policy"] = 0.05
) -> Objective:
    """Log-likelihood weighted by the advantage, with a squared penalty on leaving the old policy."""
    surrogate, penalties = (Regularised(), (ToOld(beta),)) if beta else (LogLikelihood(), ())
    return Objective(GroupAdvantage(), surrogate, TokenMean(), penalties=penalties)
