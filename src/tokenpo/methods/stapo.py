"""STAPO: drop the improbable tokens that a right answer rewards by accident.

    low_it = 1[A_i > 0 and p_it < prob]
    spurious_it = low_it · 1[H_it < the quantile of H over the tokens with low = 1]
    J = 1/Σ kept Σ_i Σ_t kept_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i),   kept = 1 − spurious

An unlikely token where the policy was sure has a large gradient, though it earned none of the reward.
Defaults: prob 0.002, quantile 0.75 (paper); clip 0.2/0.28 as in DAPO. The denominator counts the tokens that are kept.
Departures: p and H are the current policy's, and the nearest-rank quantile is taken over the optimiser step;
policy="old" takes the old policy's.
Reductions: prob = 0 is DAPO with dual=None.
"""

from typing import Annotated, Literal

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.parts import BatchSignal, Clip, Drop, FixedBounds, GroupAdvantage, Look, NormalisedWeight, TokenMean
from ..core.parts.selection import entropy_of
from ..core.ranges import Share
from ..core.types import Batch
from .options import High, Low
from .paper import Paper

Unlikely = Annotated[Share, "a token is unlikely below this probability"]
Quantile = Annotated[Share, "quantile of the entropies of unlikely tokens in right responses; tokens below are dropped"]


class Spurious(BatchSignal):
    """1.0 at unlikely tokens of right responses whose entropy is low among such tokens."""

    prob: Unlikely
    quantile: Quantile
    current: bool

    @property
    def reads(self) -> set[str]:
        return {entropy_of(current=self.current)}

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        logprob = batch.policy.logprob if self.current else batch.rollouts.old_logprob
        entropy = batch.need(entropy_of(current=self.current))
        unlikely = batch.mask & (batch.credit.advantage > 0) & (logprob.exp() < self.prob)
        if not unlikely.any():
            return torch.zeros_like(entropy)
        threshold = masked.quantile(entropy[unlikely], self.quantile)
        return (unlikely & (entropy < threshold)).to(entropy.dtype)


@Paper(
    "STAPO: Stabilizing Reinforcement Learning for LLMs by Silencing Rare Spurious Tokens",
    "2602.15620",
    "paper",
    "which policy's probabilities and entropies, and the batch of the quantile, are our reading",
)
def stapo(
    *,
    prob: Unlikely = 0.002,
    quantile: Quantile = 0.75,
    low: Low = 0.2,
    high: High = 0.28,
    policy: Annotated[Literal["current", "old"], "the policy of the probabilities and entropies"] = "current",
) -> Objective:
    """Drops unlikely tokens of right responses where the policy was sure of another token."""
    weight = NormalisedWeight.of(Drop(Spurious(prob, quantile, policy == "current")))
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), weights=(weight,))
