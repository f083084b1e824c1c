"""CE-GPPO: tokens outside the clip keep a bounded gradient.

    A < 0 and r < 1 − low:   c = beta1 (1 − low)
    A > 0 and r > 1 + high:  c = beta2 (1 + high)
    elsewhere:               c = r
    J = 1/Σ|o_i| Σ_i Σ_t c_it A_i,   with the gradient c A ∇lp

Pushing wrong tokens that have become unlikely further down raises the entropy, pushing right ones that have become
likely further up lowers it: beta1 and beta2 weigh the two.
Defaults: beta1 0.75 and beta2 1 (the authors' 7B script; 0.5 and 1 for 1.5B), clip 0.2/0.2.
Departures: the authors' code ends with a dual clip, J ≥ dual · A where A < 0, with 10 in their scripts; the formulas
have none, and none is the default.
Reductions: beta1 = beta2 = 0 is DAPO with dual=None, up to the value of the clipped tokens.
"""

from typing import Annotated

import torch

from ..core.objective import Objective
from ..core.parts import FixedBounds, GroupAdvantage, SurrogateStage, TokenMean, TokenRatio
from ..core.ranges import AboveOne, NotNegative
from ..core.types import Batch, Trust
from .options import DualOfScripts, High, Low
from .paper import Paper


class GradientPreserving(SurrogateStage):
    """r A inside the clip; outside, the bound times beta1 (below) or beta2 (above) as the weight of the gradient; at
    least `dual` · A where A < 0 (dual clip, off with None)."""

    own_slope = True
    bounds: FixedBounds
    beta1: NotNegative
    beta2: NotNegative
    dual: AboveOne | None = None

    def __call__(self, batch: Batch) -> Trust:
        ratio, advantage = TokenRatio()(batch), batch.credit.advantage
        lower, upper = self.bounds(batch)
        still = ratio.detach()
        below, above = (still < lower) & (advantage < 0), (still > upper) & (advantage > 0)
        scale = torch.where(below, self.beta1 * lower / still, torch.where(above, self.beta2 * upper / still, 1.0))
        value, clipped = scale * ratio * advantage, scale == 0
        if self.dual is not None:
            least = self.dual * advantage
            cut = (advantage < 0) & (value.detach() < least)
            value, clipped = torch.where(cut, least, value), clipped | cut
        return Trust(value, ratio, lower, upper, clipped)


@Paper(
    "CE-GPPO: Coordinating Entropy via Gradient-Preserving Clipping Policy Optimization in Reinforcement Learning",
    "2509.20712",
    "code",
    code="Kwai-Klear/CE-GPPO@10558fe:verl/trainer/ppo/core_algos.py",
)
def ce_gppo(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    beta1: Annotated[NotNegative, "coefficient of wrong tokens below the clip"] = 0.75,
    beta2: Annotated[NotNegative, "coefficient of right tokens above it"] = 1.0,
    dual: DualOfScripts = None,
) -> Objective:
    """Clipped tokens keep a gradient whose weight is the bound times a coefficient."""
    return Objective(GroupAdvantage(), GradientPreserving(FixedBounds(low, high), beta1, beta2, dual), TokenMean())
