"""CE-GPPO: tokens outside the clip keep a bounded gradient.

Paper: CE-GPPO, Coordinating Entropy via Gradient-Preserving Clipping (2509.20712); provenance: code.

    A < 0 and r < 1 − low:   c = beta1 (1 − low)
    A > 0 and r > 1 + high:  c = beta2 (1 + high)
    elsewhere:               c = r
    J = 1/Σ|o_i| Σ_i Σ_t c_it A_i,   with the gradient c A ∇lp

Pushing wrong tokens that have become unlikely further down raises the entropy, pushing right ones that have become
likely further up lowers it: beta1 and beta2 weigh the two.
Defaults: beta1 0.75, beta2 1 (the authors' scripts; 0.5 and 1 in others), clip 0.2/0.2.
Departures: none known.
Reductions: beta1 = beta2 = 0 is DAPO with dual=None, up to the value of the clipped tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..core.objective import Objective
from ..core.parts import FixedBounds, GroupAdvantage, SurrogateStage, TokenMean, TokenRatio
from ..core.ranges import Limit, NotNegative, Share
from ..core.types import Batch, Trust
from .paper import Paper, published

PAPER = Paper(
    "CE-GPPO: Coordinating Entropy via Gradient-Preserving Clipping Policy Optimization in Reinforcement Learning",
    "2509.20712", "", "code",
)  # fmt: skip


@dataclass(frozen=True)
class GradientPreserving(SurrogateStage):
    """r A inside the clip; outside, the bound times beta1 (below) or beta2 (above) as the weight of the gradient."""

    own_slope = True
    bounds: FixedBounds
    beta1: NotNegative
    beta2: NotNegative

    def __call__(self, batch: Batch) -> Trust:
        ratio, advantage = TokenRatio()(batch), batch.credit.advantage
        lower, upper = self.bounds(batch)
        still = ratio.detach()
        below, above = (still < lower) & (advantage < 0), (still > upper) & (advantage > 0)
        scale = torch.where(below, self.beta1 * lower / still, torch.where(above, self.beta2 * upper / still, 1.0))
        return Trust(scale * ratio * advantage, ratio, lower, upper, scale == 0)


@published(PAPER)
def ce_gppo(*, low: Share = 0.2, high: Limit = 0.2, beta1: NotNegative = 0.75, beta2: NotNegative = 1.0) -> Objective:
    """Clipped tokens keep a gradient whose weight is the bound times a coefficient.

    Args:
        low: clip below.
        high: clip above.
        beta1: coefficient of wrong tokens below the clip.
        beta2: coefficient of right tokens above it.
    """
    return Objective(
        name="ce_gppo",
        credit=GroupAdvantage(),
        surrogate=GradientPreserving(FixedBounds(low, high), beta1, beta2),
        aggregate=TokenMean(),
    )
