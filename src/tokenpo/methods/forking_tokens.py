"""Forking tokens: learn only where the policy hesitates.

Paper: Beyond the 80/20 Rule (2506.01939), eq. 6; provenance: code.

    keep_it = 1[H_it ≥ the (1 − fraction) quantile of H over the tokens of the batch]
    J = 1/Σ|o_i| Σ_i Σ_t [ keep_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ]

Defaults: fraction 0.2; clip 0.2/0.28 as in DAPO; beta 0, and the KL is on every token. The denominator counts every
token.
Departures: entropies are the old policy's over the rollout batch; entropy="current" takes the current policy's over the
optimiser step (the authors' code: per micro-batch). The threshold is the paper's, a nearest-rank quantile with its
ties; the authors' code keeps exactly the ⌈fraction · n⌉ highest.
Reductions: fraction = 1 is DAPO with dual=None.
"""

from __future__ import annotations

from ..base.errors import choose
from ..core.objective import Objective
from ..core.parts import (
    Clip,
    CurrentEntropyQuantile,
    FixedBounds,
    GroupAdvantage,
    HighInBatch,
    Keep,
    OldEntropyQuantile,
    ReferenceKl,
    TokenMean,
)
from ..core.ranges import Fraction, Limit, NotNegative, Share
from .paper import Paper, published

PAPER = Paper(
    "Beyond the 80/20 Rule: High-Entropy Minority Tokens Drive Effective Reinforcement Learning for LLM Reasoning",
    "2506.01939", "", "code",
)  # fmt: skip


@published(PAPER)
def forking_tokens(
    *, fraction: Fraction = 0.2, low: Share = 0.2, high: Limit = 0.28, beta: NotNegative = 0.0, entropy: str = "old"
) -> Objective:
    """Only the tokens with the highest entropy of the batch get a gradient.

    Args:
        fraction: share of the tokens that is kept, 0 < fraction <= 1.
        low: clip below.
        high: clip above.
        beta: coefficient of the k3 divergence from the reference on all tokens; 0 asks for no reference.
        entropy: of the "old" or of the "current" policy.
    """
    kind = choose("forking_tokens: entropy", entropy, {"old": OldEntropyQuantile, "current": CurrentEntropyQuantile})
    return Objective(
        name="forking_tokens",
        credit=GroupAdvantage(),
        surrogate=Clip(FixedBounds(low, high)),
        weights=(Keep(HighInBatch(kind(1 - fraction))),),
        penalties=(ReferenceKl(beta),) if beta else (),
        aggregate=TokenMean(),
    )
