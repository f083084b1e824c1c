"""EGSPO: the full gradient where the policy hesitates, a damped one where it is sure.

    w_it = 1 where H_old,it ≥ the quantile of H_old over the tokens of the rollout batch, damped_it elsewhere
    damped_it = attenuation;   curve="chord": attenuation · 4 p_it (1 − p_it),   p = exp(sg[lp])
    J = 1/Σ|o_i| Σ_i Σ_t w_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

From the abstract: tokens of high predictive entropy get full PPO updates, those of low entropy attenuated ones. All
else is our reading; the supervised stage of the paper is not implemented.
Defaults: all ours: the quantile 0.8 of the 80/20 rule, half the weight below it, DAPO's clip.
Options: curve="chord" is the shape p (1 − p) that CHORD gives to expert tokens, scaled so that attenuation is its
largest value, at p = 1/2.
Reductions: attenuation = 0 is 80/20 forking tokens with fraction = 1 − quantile, up to a token at the threshold, which
is a nearest-rank quantile here and a count there. With the constant curve attenuation = 1 is DAPO with dual=None.
"""

from typing import Annotated, Literal

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.parts import Clip, FixedBounds, GroupAdvantage, HighInBatch, OldEntropyQuantile, Selection, TokenMean
from ..core.parts.weights import BatchWeight
from ..core.ranges import Share
from ..core.types import Batch
from .options import High, Low
from .paper import Paper

Attenuation = Annotated[Share, "largest weight of the other tokens"]


class Attenuated(BatchWeight):
    """1 where tokens are selected, `attenuation` elsewhere, or with `chord` attenuation · 4 p (1 − p)."""

    selection: Selection
    attenuation: Attenuation
    chord: bool

    def of_batch(self, batch: Batch) -> Tensor:
        logprob = batch.policy.logprob.detach().clamp(max=0)
        # 1 − p by expm1: near p = 1 the difference of two rounded numbers is noise.
        curve = -4 * logprob.exp() * logprob.expm1() if self.chord else torch.ones_like(logprob)
        return torch.where(self.selection(batch), 1.0, self.attenuation * curve)


@Paper(
    "Entropy-Gated Selective Policy Optimization: Token-Level Gradient Allocation for Hybrid Training of Large "
    "Language Models",
    "2602.03309",
    "reconstructed",
    "only the abstract could be read: the attenuation, the threshold and the denominator are ours",
)
def egspo(
    *,
    quantile: Annotated[Share, "quantile of the rollout batch's old entropies; from it on the weight is 1"] = 0.8,
    attenuation: Attenuation = 0.5,
    curve: Annotated[
        Literal["constant", "chord"], "weight of the others: all the same, or by their probability"
    ] = "constant",
    low: Low = 0.2,
    high: High = 0.28,
) -> Objective:
    """Weighs tokens with high entropy by 1 and the others by less."""
    damped = Attenuated(HighInBatch(OldEntropyQuantile(quantile)), attenuation, curve == "chord")
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), weights=(damped,))
