"""ASPO: right tokens weigh by the inverse of their ratio.

    e_it = high_eps where H_it > the quantile of its response, low_eps elsewhere
    A > 0: c = min(1/r, dual), no gradient where r > 1 + e
    A < 0: c = min(r, dual),   no gradient where r < 1 − e
    J = 1/Σ|o_i| Σ_i Σ_t c_it A_i,   with the gradient c A ∇lp

The usual ratio strengthens most the right tokens that are already likely; its inverse strengthens those that lag.
A token beyond `dual` keeps a gradient with that weight, unlike under the usual dual clip.
Defaults: eps 0.2 / 0.4, response quantile 0.8, dual 3 (the authors' code).
Departures: entropies are the old policy's; entropy="current" takes the current one's, as the authors' code does. The
quantile is nearest-rank, theirs interpolates. Beyond `dual` the value is dual · A, theirs dual · A · lp; the gradient
is the same.
Reductions: at lp = lp_old the gradient is DAPO's.
"""

from typing import Annotated

import torch

from ..core.objective import Objective
from ..core.parts import Bounds, FixedBounds, HighInResponse, SelectedBounds, SurrogateStage, TokenMean, TokenRatio
from ..core.parts.credit import GroupAdvantage
from ..core.ranges import AboveOne, Share
from ..core.types import Batch, Trust
from .options import OfPolicy, OfResponse
from .paper import Paper


class Asymmetric(SurrogateStage):
    """min(1/r, dual) A for A ≥ 0 and min(r, dual) A for A < 0 inside the bounds; no gradient outside them."""

    own_slope = True
    bounds: Bounds
    dual: AboveOne

    def __call__(self, batch: Batch) -> Trust:
        ratio, advantage = TokenRatio()(batch), batch.credit.advantage
        lower, upper = self.bounds(batch)
        still, negative = ratio.detach(), advantage < 0
        outside = torch.where(negative, still < lower, still > upper)
        kept = torch.where(negative, still.clamp(min=lower), 1 / still.clamp(max=upper))
        weighted = kept.clamp(max=self.dual) * advantage
        # sg[weight] A r / sg[r] has the value of the weight, and a slope in r inside the bounds.
        value = weighted * torch.where(outside, 1.0, ratio / still)
        return Trust(value, ratio, lower, upper, outside & advantage.bool())


@Paper(
    "ASPO: Asymmetric Importance Sampling Policy Optimization",
    "2510.06062",
    "code",
    code="wizard-III/Archer2.0@b08d963:verl/trainer/ppo/core_algos.py; "
    "wizard-III/Archer2.0@b08d963:verl/workers/actor/dp_actor.py",
)
def aspo(
    *,
    low_eps: Annotated[Share, "clip of tokens with low entropy"] = 0.2,
    high_eps: Annotated[Share, "clip of tokens with high entropy"] = 0.4,
    quantile: OfResponse = 0.8,
    dual: Annotated[AboveOne, "largest weight of a gradient"] = 3.0,
    entropy: OfPolicy = "old",
) -> Objective:
    """Positive tokens are weighted by the inverse ratio, with wider bounds where entropy is high."""
    high, low = FixedBounds(high_eps, high_eps), FixedBounds(low_eps, low_eps)
    bounds = SelectedBounds(HighInResponse(quantile, entropy == "current"), high, low)
    return Objective(GroupAdvantage(), Asymmetric(bounds, dual), TokenMean())
