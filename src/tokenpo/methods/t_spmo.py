"""T-SPMO: token-level credit by prefix matching inside a group.

Paper: Token-Efficient RL for LLM Reasoning (2504.20834); provenance: reconstructed: only the abstract could be read. It
says that credit is given to tokens by matching the prefixes of a group's responses; the formulas are ours.

    A(u, v)  = mean R of the responses that go on from prefix u with token v
             − mean R of those that go on from u with another token;   0 where none does
    A_it     = A(o_i,<t, o_it)                  J_it = min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)
    count="pairs":     J = 1/|U| Σ_{(u, v) in U} mean of J_it over the responses that go through (u, v)
    count="rollouts":  J = 1/Σ|o_i| Σ_i Σ_t J_it

U is the set of the pairs at which a group's responses part. A response that ends at u goes on with no token there.
Defaults: count "pairs", clip 0.2/0.2: ours.
Departures: unknown, the paper's formulas could not be read. |U| is counted over the rollout batch.
Note: free-running responses soon share no prefix, and then only the tokens at which they parted learn.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.parts import Clip, CreditStage, FixedBounds, TokenMean
from ..core.types import Rollouts
from .options import High, Low
from .paper import Paper


@dataclass(frozen=True)
class PrefixTree(CreditStage):
    """The mean reward behind a token less the mean reward behind its alternatives at the same prefix.

    Args:
        pairs: every distinct (prefix, token) counts once, however many responses share it; otherwise every token does.
    """

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
            # Free-running responses soon share no prefix: then none can part any more.
            if (Groups.of(node, rollouts.mask[:, t:].any(1)).size() <= 1).all():
                break
            pair = torch.unique(torch.stack([node, tokens[:, t]]), dim=1, return_inverse=True)[1]
            here, on = Groups.of(node, alive), Groups.of(pair, alive)
            rest = here.size() - on.size()
            branch = alive & (rest > 0)
            shared = on.size().clamp(min=1)
            gain = on.sum(reward) / shared - (here.sum(reward) - on.sum(reward)) / rest.clamp(min=1)
            # Equal rewards part with no gain, however their means round.
            gain = torch.where(branch & here.varied(reward), gain, 0.0)
            advantage[:, t] = gain / shared if self.pairs else gain
            branches = branches + (branch.double() / shared).sum()
            # A row that has ended takes no part below; its id only must not meet another's.
            node = pair
        if not self.pairs:
            return advantage
        return advantage * rollouts.mask.sum() / branches.clamp(min=1)


@Paper(
    "Token-Efficient RL for LLM Reasoning", "2504.20834", "reconstructed",
    "the credit of a pair, the denominator, and prefixes from which no response parts",
)  # fmt: skip
def t_spmo(
    *,
    count: Annotated[
        Literal["pairs", "rollouts"],
        'every distinct pair of prefix and token once ("pairs"), or every token of every rollout ("rollouts")',
    ] = "pairs",
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """A token learns by what its alternatives at the same prefix were worth."""
    return Objective(
        PrefixTree(count == "pairs"),
        Clip(FixedBounds(low, high)),
        TokenMean(),
    )
