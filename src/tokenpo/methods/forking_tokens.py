"""Forking tokens (eq. 6): learn only where the policy hesitates.

    keep_it = 1[H_it ≥ the ⌈fraction · n⌉-th largest H of the n tokens of the batch]
    J = 1/Σ|o_i| Σ_i Σ_t [ keep_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ]

Defaults: fraction 0.2; clip 0.2/0.28 as in DAPO; beta 0, and the KL is on every token. The denominator counts every
token.
Departures: the authors' code divides the policy's term by the kept tokens, and its scripts put a dual clip at 10:
denominator="kept", dual=10; the default denominator is eq. 6's and TRL's. Entropies are the old policy's over the
rollout batch; entropy="current" takes the current policy's over the optimiser step (the authors' code: per
micro-batch). The count is the authors' code's; of equal entropies at the threshold it keeps as many as fit, ours all.
Reductions: fraction = 1 is DAPO with dual=None.
"""

from typing import Annotated, Literal

from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.parts import Clip, FixedBounds, GroupAdvantage, HighInBatch, ReferenceKl, Signal, TokenMean
from ..core.parts.selection import CurrentEntropyQuantile, OldEntropyQuantile
from ..core.parts.weights import BatchWeight, Keep, NormalisedWeight, SignalWeight
from ..core.ranges import Fraction, Share
from ..core.types import Rollouts
from .options import Beta, DualOfScripts, High, Low, OfPolicy
from .paper import Paper


class ForkingShare(Signal):
    """n / k at the k tokens of the rollout batch's n whose entropies are highest, 0 elsewhere [N, T]."""

    reads = {"old_entropy"}
    quantile: Share

    def __call__(self, rollouts: Rollouts) -> Tensor:
        entropy = rollouts.need("old_entropy")
        kept = (entropy >= OldEntropyQuantile(self.quantile, counted=True)(rollouts)).to(entropy.dtype)
        return kept / masked.mean(kept, rollouts.mask)


@Paper(
    "Beyond the 80/20 Rule: High-Entropy Minority Tokens Drive Effective Reinforcement Learning for LLM Reasoning",
    "2506.01939",
    "code",
    code="Shenzhi-Wang/Beyond-the-80-20-Rule-RLVR@6f5dda6:verl/trainer/ppo/core_algos.py",
)
def forking_tokens(
    *,
    fraction: Annotated[Fraction, "share of the tokens that is kept"] = 0.2,
    low: Low = 0.2,
    high: High = 0.28,
    dual: DualOfScripts = None,
    beta: Beta = 0.0,
    entropy: OfPolicy = "old",
    denominator: Annotated[Literal["all", "kept"], "tokens that divide the policy's term"] = "all",
) -> Objective:
    """Only the tokens with the highest entropies of the batch get a gradient."""
    kind = {"old": OldEntropyQuantile, "current": CurrentEntropyQuantile}[entropy]
    weight: BatchWeight = Keep(HighInBatch(kind(1 - fraction, counted=True)))
    if denominator == "kept":
        old = SignalWeight(ForkingShare(1 - fraction))
        weight = old if kind is OldEntropyQuantile else NormalisedWeight.of(weight)
    return Objective(
        GroupAdvantage(),
        Clip(FixedBounds(low, high), dual=dual),
        TokenMean(),
        weights=(weight,),
        penalties=(ReferenceKl(beta),) if beta else (),
    )
