"""S-GRPO: GRPO on a random part of the tokens.

Paper: Token-Efficient RL for LLM Reasoning (2504.20834); provenance: reconstructed: only the abstract could be read. It
says that the loss is computed on a small subset of the tokens; how the subset is drawn is ours.

    kept_it = 1[t ≤ always] or 1[u_it < fraction],   u uniform in [0, 1)
    J = 1/N Σ_i 1/kept_i Σ_t kept_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i),   kept_i = Σ_t kept_it

Defaults: fraction 0.5, always 0, clip 0.2/0.2: ours.
Options: always keeps the first tokens of every response.
Departures: unknown, the paper's rule could not be read. A response of which nothing is kept adds 0 and counts in N.
Reductions: fraction = 1 is GRPO.
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.parts import BatchSignal, Clip, FixedBounds, GroupAdvantage, Keep, Look, RowNormalised, SequenceMean
from ..core.ranges import Fraction, whole
from ..core.types import Batch
from .options import High, Low
from .paper import Paper


@dataclass(frozen=True)
class RandomTokens(BatchSignal):
    """1.0 at a random part of the tokens: each with probability `fraction`, the first `always` of a response surely."""

    draws = True
    fraction: Fraction
    always: Annotated[int, whole(0)]

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator | None) -> Tensor:
        generator = torch.Generator().manual_seed(0) if generator is None else generator
        # One number per token, none for padding: the width of the batch decides nothing.
        uniform = torch.rand(int(batch.mask.sum()), generator=generator).to(batch.mask.device)
        drawn = torch.zeros_like(batch.mask).masked_scatter(batch.mask, uniform < self.fraction)
        first = batch.mask.cumsum(1) <= self.always
        return (batch.mask & (drawn | first)).to(batch.policy.logprob.dtype)


@Paper(
    "Token-Efficient RL for LLM Reasoning", "2504.20834", "reconstructed",
    "how the tokens are drawn, their share and the denominator",
)  # fmt: skip
def s_grpo(
    *,
    fraction: Annotated[Fraction, "probability of a token to be kept"] = 0.5,
    low: Low = 0.2,
    high: High = 0.2,
    always: Annotated[Annotated[int, whole(0)], "the number of first tokens of a response that are always kept"] = 0,
) -> Objective:
    """Each response learns from a random part of its tokens."""
    return Objective(
        GroupAdvantage(),
        Clip(FixedBounds(low, high)),
        SequenceMean(),
        weights=(RowNormalised(Keep(RandomTokens(fraction, always))),),
    )
