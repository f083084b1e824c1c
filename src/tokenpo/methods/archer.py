"""Archer: a narrow clip and a KL for tokens with low entropy, a wide clip alone for those with high entropy.

    high_it = 1[H_it > the quantile of its response's entropies]
    eps_it = high_clip where high, low_clip elsewhere;   k_it = 0 where high, kl elsewhere
    J = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_i, clip(r_it, 1−eps_it, 1+eps_it) A_i) − k_it · k3(π_ref/π) ]

Defaults: clip 0.2 and 0.5, kl 0.001, response quantile 0.8 (code). The dual clip is off; their scripts put it at 10.
Departures: entropies are the old policy's; entropy="current" takes the current one's, as the authors' code does. The
quantile is nearest-rank, theirs interpolates. The KL is averaged over all tokens, theirs over those of low entropy,
which is about 1/quantile larger.
Reductions: kl = 0 and equal clips is DAPO with that clip and the same dual.
"""

from typing import Annotated

from ..core.objective import Objective
from ..core.parts import Clip, Drop, FixedBounds, GroupAdvantage, HighInResponse, ReferenceKl, SelectedBounds, TokenMean
from ..core.ranges import NotNegative, Share
from .options import Dual, OfPolicy, OfResponse
from .paper import Paper


@Paper(
    "Stabilizing Knowledge, Promoting Reasoning: Dual-Token Constraints for RLVR", "2507.15778", "code",
    code="wizard-III/ArcherCodeR@8a1785b:verl/trainer/ppo/core_algos.py; "
    "wizard-III/ArcherCodeR@8a1785b:verl/workers/actor/dp_actor.py",
)  # fmt: skip
def archer(
    *,
    low_clip: Annotated[Share, "clip, below and above, of tokens with low entropy"] = 0.2,
    high_clip: Annotated[Share, "clip of tokens with high entropy"] = 0.5,
    kl: Annotated[NotNegative, "k3 divergence from the reference, on tokens with low entropy; 0 needs none"] = 1e-3,
    quantile: OfResponse = 0.8,
    dual: Dual = None,
    entropy: OfPolicy = "old",
) -> Objective:
    """A wide clip and no KL where entropy is high, a narrow clip and a KL where it is low."""
    high = HighInResponse(quantile, entropy == "current")
    bounds = SelectedBounds(high, FixedBounds(high_clip, high_clip), FixedBounds(low_clip, low_clip))
    return Objective(
        GroupAdvantage(),
        Clip(bounds, dual=dual),
        TokenMean(),
        penalties=(ReferenceKl(kl, scale=Drop(high)),) if kl else (),
    )
