"""SENT: among tokens with low entropy, those with extreme covariance pay for leaving the old policy.

    S = the max(1, int(low_entropy · n)) tokens of the step with the lowest entropy
    cov_t = (A_t − mean_S A)(lp_t − mean_S lp) for t in S,   k = max(1, int(fraction · |S|))
    g_t = strong at the k largest cov, weak at the k smallest, 0 elsewhere
    J = 1/Σ|o_i| Σ_i Σ_t [ r_it A_i − coef · g_it |lp − lp_old|_it − beta · k3(π_ref/π) ],   without a clip

This is the token part; the paper's curriculum, prompts ordered by semantic entropy, belongs to the data.
Defaults: low_entropy 0.8, strong 2, weak 0.5, fraction 2e-4, coef 1 (the authors' code); beta 0, theirs 0.001.
Departures: the selection is over the whole optimiser step; the authors' code selects per micro-batch. Their abstract
speaks of a KL on the tokens of S; their code, as here, penalises the 2 k extreme ones. S includes every token whose
entropy equals the border. A token at both ends, in a tiny batch, counts as smallest, as in their code.
Options: entropy="old" takes the old policy's entropies.
The penalty needs several updates per rollout: it is idle at lp = lp_old, up to the rounding between engines.
Reductions: low_entropy = 1 and weak = 0 is KL-Cov with coef · strong.
"""

from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.parts import Anchor, BatchSignal, GroupAdvantage, Look, ReferenceKl, TokenMean, Unclipped
from ..core.parts.selection import entropy_of
from ..core.ranges import Fraction, NotNegative
from ..core.types import Batch
from .cov import covariance
from .options import Beta, OfPolicy
from .paper import Paper


class CovarianceTails(BatchSignal):
    """`strong` at the largest, `weak` at the smallest covariances among the tokens with the lowest entropy, else 0."""

    fraction: Fraction
    low_entropy: Fraction
    strong: NotNegative
    weak: NotNegative
    current: bool

    @property
    def reads(self) -> set[str]:
        return {entropy_of(current=self.current)}

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        entropy = batch.need(entropy_of(current=self.current))
        values = entropy[batch.mask]
        border = masked.smallest(values, max(1, int(self.low_entropy * values.numel())) - 1)
        low = batch.mask & (entropy <= border)
        advantage, logprob = (masked.keep(x, low) for x in (batch.credit.advantage, batch.policy.logprob))
        cov = covariance(advantage, logprob, low.sum())[low]
        count = max(1, int(self.fraction * cov.numel()))
        tails = torch.zeros_like(cov)
        tails[cov.topk(count).indices] = self.strong
        tails[cov.topk(count, largest=False).indices] = self.weak
        return tails.new_zeros(low.shape).masked_scatter(low, tails)


@Paper(
    "Efficient Reinforcement Learning with Semantic and Token Entropy for LLM Reasoning",
    "2512.04359",
    "code",
    "the curriculum by semantic entropy is not implemented",
    code="zldscr0/SENT@2a7c40f:verl/trainer/ppo/core_algos.py",
)
def sent(
    *,
    fraction: Annotated[Fraction, "share of the low-entropy tokens that is penalised at each end"] = 2e-4,
    low_entropy: Annotated[Fraction, "share of all tokens that counts as having low entropy"] = 0.8,
    strong: Annotated[NotNegative, "factor for the largest covariances"] = 2.0,
    weak: Annotated[NotNegative, "factor for the smallest covariances"] = 0.5,
    coef: Annotated[NotNegative, "coefficient of |lp − lp_old|"] = 1.0,
    beta: Beta = 0.0,
    entropy: OfPolicy = "current",
) -> Objective:
    """Penalises low-entropy tokens with extreme covariance for leaving the old policy."""
    held = Anchor(coef, CovarianceTails(fraction, low_entropy, strong, weak, entropy == "current"))
    penalties = (held, ReferenceKl(beta)) if beta else (held,)
    return Objective(GroupAdvantage(), Unclipped(), TokenMean(), penalties=penalties)
