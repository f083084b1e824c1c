"""NTHR: in wrong responses, the tokens that also make right ones likely are pushed down less.

The text that was read lacks the displayed formulas; they are from an implementation note that agrees with it.

    s_jk = Σ_{i right} Σ_l ⟨g_jk, g_il⟩ ⟨h_jk, h_il⟩,   g = one-hot − π_old, h the final hidden state   (`influence`)
    tau  = beta · min_{i right} 1/|o_i| Σ_k s_ik
    A_jk = eta · A_j where j is wrong and s_jk > tau, else A_j;   eta = 2 |1/2 − share of right responses|
    J = GRPO's with A_jk in place of A_j

A step on token k of response j changes the log-likelihood of the right responses by s_jk times its advantage, to first
order in the weights of the head: a wrong token with a large s drags them down.
Defaults: beta 1, eta as above, clip 0.2/0.2, kl 1e-4 against the reference (paper, section 7.3). The paper's
dynamic sampling is a setting of the engine.
Departures: right means a reward above the group's mean, as rewards need not be binary. s runs over the whole
vocabulary; the paper restricts it to the tokens that occur in the group. The mean of a right response counts its
influence on itself. tau can be negative, and then nearly every wrong token is selected.
Reductions: eta = 1 is GRPO with beta = kl. beta = inf is too, where the right responses help each other; beta = −inf
with eta = 0 then learns from right responses alone.
"""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from ...core.facts import Fact
from ...core.objective import Objective
from ...core.ops import masked
from ...core.ops.group import Groups
from ...core.parts import Clip, FixedBounds, GroupAdvantage, ReferenceKl, SequenceMean, SignalWeight
from ...core.parts.part import Sampler, Signal, Supplied, Tokens
from ...core.ranges import NotNegative, Number
from ...core.types import Rollouts
from ..options import Beta, High, Low
from ..paper import Paper

Beyond = Annotated[Number, "influence threshold, as a multiple of a right response's least mean; may be ±inf"]
Factor = Annotated[NotNegative | None, "factor on selected tokens; None uses 2 |1/2 − share of right responses|"]


class Influence(Supplied):
    """Σ ⟨g, g'⟩⟨h, h'⟩ over the tokens of the group's responses whose reward exceeds its mean; 0 if all are equal.

    h is the final hidden state that predicts a token; g is the token's one-hot minus the probabilities at its sampling
    temperature. The exact gradient g hᵀ in the head's weights has a factor 1/temperature, which is left out: a constant
    factor scales scores and thresholds equally. With M = Σ g' h'ᵀ the sum is gᵀ M h, so the cost grows with the number
    of tokens, not with its square; M [V, H] of one group is held in float32 at least.
    """

    gives = "influence"
    fact = Fact(
        "Σ ⟨g, g'⟩⟨h, h'⟩ over the tokens of the responses in the group whose reward exceeds its mean",
        more="how much a step on this token raises their log-likelihood, to first order in the head's weights (h: "
        "final hidden state, g: one-hot of the token − probabilities, of the old policy)",
    )

    def supply(self, rollouts: Rollouts, sampler: Sampler) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        mixed, right = groups.varied(rollouts.reward), groups.above_mean(rollouts.reward)
        table = torch.zeros_like(rollouts.old_logprob)
        for tokens in sampler.tokens(rollouts.under(mixed[:, None])):
            table[tokens.row, tokens.column] = _scores(tokens, right.to(tokens.row.device)[tokens.row]).to(table)
        return table


def _scores(tokens: Tokens, right: Tensor) -> Tensor:
    """[M] gᵀ M h of the tokens of one group, with M summed over the tokens that are `right` [M]."""
    matrix = torch.zeros(())
    exact = torch.autocast(right.device.type, enabled=False)  # products keep their precision
    for at in right.nonzero()[:, 0].split(tokens.chunk):
        g, h = _residual(tokens, at)
        with exact:
            matrix = matrix + g.T @ h
    scores = []
    for at in torch.arange(len(right), device=right.device).split(tokens.chunk):
        g, h = _residual(tokens, at)
        with exact:
            scores.append((g * (h @ matrix.T)).sum(1))
    return torch.cat(scores)


def _residual(tokens: Tokens, at: Tensor) -> tuple[Tensor, Tensor]:
    """One-hot − probabilities [·, V], and the hidden states [·, H], of the tokens at `at`."""
    g = -tokens.log_probabilities(at).exp()
    g[torch.arange(len(at), device=at.device), tokens.target[at]] += 1
    return g, tokens.hidden[at].to(g.dtype)


class Sides(NamedTuple):
    """The responses of every group, divided at the group's mean reward; neither side where all rewards are equal.

    Args:
        right: [N] bool, the reward exceeds the group's mean.
        wrong: [N] bool, the reward does not exceed it.
        share: [N] share of right responses in the group.
        least: [N] smallest mean influence over the tokens of a right response of the group; +inf without one.
    """

    right: Tensor
    wrong: Tensor
    share: Tensor
    least: Tensor


def sides(rollouts: Rollouts) -> Sides:
    """The sides, from float64 so that thresholds do not depend on rounding; rows without a token are on neither."""
    groups = Groups.of(rollouts.group, rollouts.mask.any(1))
    right = groups.above_mean(rollouts.reward)
    mean = masked.mean(rollouts.need("influence").double(), rollouts.mask, dim=1)[:, 0]
    least, _ = Groups(groups.index, groups.count, right).extremes(mean)
    share = groups.mean_std(right)[0]
    return Sides(right, groups.varied(rollouts.reward) & ~right, share, least)


class SparedTokens(Signal):
    """eta at the tokens of wrong responses whose influence on the right ones exceeds the threshold, 1 elsewhere."""

    beta: Beyond
    eta: Factor
    by: Influence = Influence()

    def __call__(self, rollouts: Rollouts) -> Tensor:
        influence = rollouts.need("influence")
        _, wrong, share, least = sides(rollouts)
        selected = wrong[:, None] & (influence.double() > (self.beta * least)[:, None])
        eta = 2 * (0.5 - share).abs() if self.eta is None else torch.full_like(share, self.eta)
        return torch.where(selected, eta[:, None], 1.0).to(influence.dtype)


@Paper(
    "On the Effect of Negative Gradient in Group Relative Deep Reinforcement Optimization",
    "2505.18830",
    "paper",
    "the displayed formulas are from an implementation note; that a response's mean counts its influence on itself is "
    "our reading",
)
def nthr(*, beta: Beyond = 1.0, eta: Factor = None, low: Low = 0.2, high: High = 0.2, kl: Beta = 1e-4) -> Objective:
    """Pushes down less the tokens of wrong responses that make right responses likely."""
    penalties = (ReferenceKl(kl),) if kl else ()
    weights = (SignalWeight(SparedTokens(beta, eta)),)
    return Objective(
        GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), weights=weights, penalties=penalties
    )
