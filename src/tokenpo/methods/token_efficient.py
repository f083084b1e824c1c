"""S-GRPO and T-SPMO: GRPO on a random part of the tokens, and credit by matching the prefixes of a group's responses.

From the abstract: the loss is computed on a small subset of the tokens (S-GRPO), and tokens get credit by matching the
prefixes of a group's responses (T-SPMO). How the subset is drawn and the formulas of the credit are ours.

    S-GRPO    kept_it = 1[t ≤ always] or 1[u_it < fraction],   u uniform in [0, 1)
    J = 1/N Σ_i 1/kept_i Σ_t kept_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i),   kept_i = Σ_t kept_it

    T-SPMO    A_it = A(o_i,<t, o_it),   J_it = min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)
    A(u, v)  = mean R of the responses that go on from prefix u with token v
             − mean R of those that go on from u with another token;   0 where none does
    count="pairs":     J = 1/|U| Σ_{(u, v) in U} mean of J_it over the responses that go through (u, v)
    count="rollouts":  J = 1/Σ|o_i| Σ_i Σ_t J_it

U is the set of pairs at which responses of a group branch, over the rollout batch. A response that ends at u has no
next token there. Sampled responses soon share no prefix: only the tokens at which they branch learn.
Defaults: fraction 0.5, always 0, count "pairs", clip 0.2/0.2: ours.
Departures: in S-GRPO a response without kept tokens adds 0 and counts in N.
Reductions: S-GRPO with fraction = 1 is GRPO.
"""

from typing import Annotated, Literal

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.parts import BatchSignal, Clip, FixedBounds, GroupAdvantage, Keep, Look, SequenceMean, TokenMean
from ..core.parts.part import CreditStage
from ..core.parts.weights import RowNormalised
from ..core.ranges import Fraction, whole
from ..core.types import Batch, Rollouts
from .options import High, Low
from .paper import Paper

PAPER = Paper(
    "Token-Efficient RL for LLM Reasoning",
    "2504.20834",
    "reconstructed",
    "of S-GRPO how tokens are drawn, their share and the denominator; of T-SPMO the credit of a pair, the denominator, "
    "and prefixes from which no response parts",
)
Always = Annotated[int, whole(0)]


class RandomTokens(BatchSignal):
    """1.0 at randomly kept tokens: each with probability `fraction`, the first `always` of a response always."""

    draws = True
    fraction: Fraction
    always: Always

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        # One number per token, none for padding: the width of the batch makes no difference.
        uniform = torch.rand(int(batch.mask.sum()), generator=generator).to(batch.mask.device)
        drawn = torch.zeros_like(batch.mask).masked_scatter(batch.mask, uniform < self.fraction)
        first = batch.mask.cumsum(1) <= self.always
        return (batch.mask & (drawn | first)).to(batch.policy.logprob.dtype)


class PrefixTree(CreditStage):
    """The mean reward after a token minus that after its alternatives at the prefix; `pairs` counts each pair once."""

    across_groups = True
    reads = {"token_ids"}
    pairs: bool

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        tokens = rollouts.need("token_ids")
        reward = (rollouts.reward + bonus).double()
        advantage = torch.zeros(rollouts.mask.shape, dtype=torch.float64, device=reward.device)
        branches = advantage.new_zeros(())
        node = rollouts.group
        for t in range(rollouts.mask.shape[1]):
            alive = rollouts.mask[:, t]
            # Responses that share no prefix cannot branch any more.
            if (Groups.of(node, rollouts.mask[:, t:].any(1)).size() <= 1).all():
                break
            pair = torch.unique(torch.stack([node, tokens[:, t]]), dim=1, return_inverse=True)[1]
            here, on = Groups.of(node, alive), Groups.of(pair, alive)
            rest = here.size() - on.size()
            branch = alive & (rest > 0)
            shared = on.size().clamp(min=1)
            gain = on.sum(reward) / shared - (here.sum(reward) - on.sum(reward)) / rest.clamp(min=1)
            # Equal rewards give no gain, whatever rounding does to their means.
            gain = torch.where(branch & here.varied(reward), gain, 0.0)
            advantage[:, t] = gain / shared if self.pairs else gain
            branches = branches + (branch.double() / shared).sum()
            # A row that has ended is ignored from here on; its id must only differ from the other rows'.
            node = pair
        if not self.pairs:
            return advantage
        return advantage * rollouts.mask.sum() / branches.clamp(min=1)


@PAPER
def s_grpo(
    *,
    fraction: Annotated[Fraction, "probability of a token to be kept"] = 0.5,
    low: Low = 0.2,
    high: High = 0.2,
    always: Annotated[Always, "number of first tokens of a response that are always kept"] = 0,
) -> Objective:
    """Each response learns from a random part of its tokens."""
    weight = RowNormalised(Keep(RandomTokens(fraction, always)))
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), weights=(weight,))


@PAPER
def t_spmo(
    *,
    count: Annotated[
        Literal["pairs", "rollouts"], "count each distinct pair of prefix and token once, or each token of each rollout"
    ] = "pairs",
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Compares the mean reward after a token with that after its alternatives at the same prefix."""
    return Objective(PrefixTree(count == "pairs"), Clip(FixedBounds(low, high)), TokenMean())
