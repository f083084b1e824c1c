"""TW-GRPO: tokens weigh more at positions where the responses of a group differ.

    L_itv = log-probability of token v at position t of response i, −log V where it has ended;   L̄_tv = mean_i L_itv
    d_t = mean_i Σ_v (exp(D) − D − 1),   D = L̄_tv − L_itv clamped to ±11                               (`divergence`)
    w_t = 1 + (alpha − 1) · (d_t − min d) / (max d − min d + 1e-8)
    A_i = (R_i − mean_g R) / (std_g R + 1e-4)
    J = 1/Σ|o_i| Σ_i Σ_t w_t · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

The mean over i and the extremes of d are of one group. The sum over the vocabulary has no probabilities for weights: d
is no divergence between distributions, and the tail dominates it.
Defaults: alpha 1.7, clip 0.2/0.28 (the authors' code and script).
Departures: d is the old policy's, at the temperature of sampling, and w has no gradient; the authors' code takes the
current policy's with its gradient. The extremes run over the positions at which a response of the group has a token;
the code's run over the padding too, so that its weights depend on the width of the batch. The code's KL term has
coefficient 0 in the script. Soft rewards for several choices and inverted questions belong to the data.
Reductions: alpha = 1 is DAPO with dual=None and 1e-4 added to the deviation. Equal d everywhere is alpha = 1.
"""

import math
from typing import Annotated

import torch
from torch import Tensor

from ...core.facts import DIVERGENCE, Fact
from ...core.objective import Objective
from ...core.ops.group import Groups
from ...core.ops.ratio import k3
from ...core.parts import Clip, FixedBounds, GroupAdvantage, Sampler, Signal, SignalWeight, Supplied, TokenMean, Tokens
from ...core.ranges import NotNegative
from ...core.types import Rollouts
from ..options import High, Low
from ..paper import Paper

FLOOR = 1e-8
FURTHEST = 11.0  # e^11 is 6e4, so sums stay finite


class GroupDivergence(Supplied):
    """d_t of the group at position t; a response that has ended counts as uniform."""

    gives = "divergence"
    fact = Fact(
        "how far the group's next-token distributions lie apart at position t (2505.24718), the same for every "
        "rollout of the group",
        DIVERGENCE,
    )

    def supply(self, rollouts: Rollouts, sampler: Sampler) -> Tensor:
        table = torch.zeros_like(rollouts.old_logprob)
        for tokens in sampler.tokens(rollouts):
            table[tokens.row, tokens.column] = _distances(tokens).to(table)
        return table


def _distances(tokens: Tokens) -> Tensor:
    """[M] d at the position of each token of one group."""
    rows, row = tokens.row.unique(return_inverse=True)
    columns, column = tokens.column.unique(return_inverse=True)
    place = torch.full((len(rows), len(columns)), -1, device=row.device)
    place[row, column] = torch.arange(len(row), device=row.device)
    distances = []
    for at in torch.arange(len(columns), device=row.device).split(max(1, tokens.chunk // len(rows))):
        alive = place[:, at] >= 0
        present = tokens.log_probabilities(place[:, at][alive])
        logp = present.new_full((*alive.shape, present.shape[1]), -math.log(present.shape[1]))
        logp[alive] = present
        distances.append(k3((logp.mean(0) - logp).clamp(-FURTHEST, FURTHEST)).sum(-1).mean(0))
    return torch.cat(distances)[column]


class PositionWeight(Signal):
    """1 where the group's divergence is least, rising linearly to `alpha` where it is largest."""

    alpha: NotNegative
    by: GroupDivergence = GroupDivergence()

    def __call__(self, rollouts: Rollouts) -> Tensor:
        mask, divergence = rollouts.mask, rollouts.need("divergence")
        d = divergence.double()
        groups = Groups.of(rollouts.group, mask.any(1))
        low, _ = groups.extremes(d.masked_fill(~mask, torch.inf).amin(1))
        _, high = groups.extremes(d.masked_fill(~mask, -torch.inf).amax(1))
        share = (d - low[:, None]) / (high - low + FLOOR)[:, None]
        return torch.where(mask, 1 + (self.alpha - 1) * share, 1.0).to(divergence.dtype)


@Paper(
    "Reinforcing Video Reasoning with Focused Thinking",
    "2505.24718",
    "code",
    code="longmalongma/TW-GRPO@aa529ff:src/open_r1/trainer/grpo_trainer.py",
)
def tw_grpo(
    *, alpha: Annotated[NotNegative, "largest weight; the smallest is 1"] = 1.7, low: Low = 0.2, high: High = 0.28
) -> Objective:
    """Weighs tokens more at positions where the next-token distributions of the group differ."""
    credit, weights = GroupAdvantage(eps=1e-4), (SignalWeight(PositionWeight(alpha)),) if alpha != 1 else ()
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), weights=weights)
