"""Weights of tokens that need a further look at the policy that sampled."""

import math
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from ...core.facts import DIVERGENCE, LOGPROB, Fact
from ...core.objective import Objective
from ...core.ops import masked
from ...core.ops.group import Groups
from ...core.ops.ratio import k3
from ...core.parts.credit import GroupAdvantage
from ...core.parts.loss import ReferenceKl, SequenceMean, TokenMean
from ...core.parts.part import CreditStage, Sampler, Signal, Supplied, Tokens
from ...core.parts.surrogate import Clip, FixedBounds
from ...core.parts.weights import SignalWeight
from ...core.ranges import Finite, Fraction, NotNegative, Number, inside
from ...core.types import Rollouts
from ..options import Beta, High, Low
from ..paper import Paper

Shift = Annotated[Finite, "size of the shift; 0 switches it off"]
LeastConfident = Annotated[
    Fraction, "share of a response's tokens, the least probable, whose geometric mean is its confidence"
]
OnlyRight = Annotated[bool, "shift only the responses whose reward exceeds the group's mean"]


class PromptLogprob(Supplied):
    """The mean log-probability of a token of the prompt under the old policy."""

    gives = "prompt_logprob"
    fact = Fact("mean log-probability of a token of the prompt under the old policy", LOGPROB, shape="[N]")

    def supply(self, rollouts: Rollouts, sampler: Sampler) -> Tensor:
        return sampler.prompt_logprob(rollouts)


class ConfidenceShift(CreditStage):
    """The group's advantage plus alpha · (confidence in the prompt − confidence in the response)."""

    alpha: Shift
    fraction: LeastConfident
    only_correct: OnlyRight
    group: GroupAdvantage = GroupAdvantage()
    prompt: PromptLogprob = PromptLogprob()

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = rollouts.reward + bonus
        moved = groups.above_mean(reward) if self.only_correct else groups.varied(reward)
        gap = rollouts.need("prompt_logprob").double().exp() - self._confidence(rollouts)
        advantage = self.group.of(groups, reward).double() + torch.where(moved, self.alpha * gap, 0.0)
        return advantage[:, None].expand(rollouts.mask.shape)

    def _confidence(self, rollouts: Rollouts) -> Tensor:
        """[N] geometric mean of the probabilities of a response's least probable tokens."""
        ranked = rollouts.old_logprob.double().masked_fill(~rollouts.mask, torch.inf).sort(1).values
        # 1e-4: the rounding of the product must not add a token.
        count = (self.fraction * rollouts.mask.sum(1, keepdim=True).double() - 1e-4).ceil().clamp(min=1)
        least = torch.arange(ranked.shape[1], device=ranked.device) < count
        return masked.mean(ranked, least, dim=1)[:, 0].exp()


@Paper(
    "Back to Basics: Revisiting Exploration in Reinforcement Learning for LLM Reasoning via Generative Probabilities",
    "2602.05281",
    "second-hand",
    "unknown: alpha, the tokens of the prompt that count, the responses that are moved",
)
def arm(
    *,
    alpha: Shift = 0.1,
    fraction: LeastConfident = 0.2,
    only_correct: OnlyRight = False,
    low: Low = 0.2,
    high: High = 0.28,
) -> Objective:
    """Advantages fall with the policy's confidence in the response and rise with its confidence in the prompt.

        c(o_i) = exp(mean lp_old of its ⌈fraction · |o_i|⌉ least probable tokens)
        c(q)   = exp(mean lp_old of the prompt)
        A_i = (R_i − mean_g R) / (std_g R + 1e-6) + alpha · (c(q) − c(o_i))
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    A group whose rewards are all equal keeps advantage 0.
    Defaults: fraction 0.2, clip 0.2/0.28 (second-hand); alpha 0.1 (ours; the value was not found).
    Options: only_correct=True shifts only responses whose reward exceeds the group's mean, as the abstract says; the
    formula shifts all.
    Departures: confidences are the old policy's, at the temperature of sampling. c(q) leaves out the prompt's first
    token.
    Reductions: alpha = 0 is DAPO with dual=None.
    """
    shifted = ConfidenceShift(alpha, fraction, only_correct)
    return Objective(shifted if alpha else shifted.group, Clip(FixedBounds(low, high)), TokenMean())


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
    """[N] bool `right` and `wrong`: above the group's mean reward or not, neither where all rewards are equal.

    `share` [N] is that of right responses in the group, `least` [N] the smallest mean influence of one, +inf without.
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
    """Pushes down less the tokens of wrong responses that make right responses likely.

        s_jk = Σ_{i right} Σ_l ⟨g_jk, g_il⟩ ⟨h_jk, h_il⟩,  g = one-hot − π_old, h the final hidden state  (`influence`)
        tau  = beta · min_{i right} 1/|o_i| Σ_k s_ik
        A_jk = eta · A_j where j is wrong and s_jk > tau, else A_j;   eta = 2 |1/2 − share of right responses|
        J = GRPO's with A_jk in place of A_j

    A step on token k of response j changes the log-likelihood of the right responses by s_jk times its advantage, to
    first order in the weights of the head: a wrong token with a large s drags them down.
    Defaults: as in the paper, section 7.3. The paper's dynamic sampling is a setting of the engine.
    Departures: right means a reward above the group's mean. s runs over the whole vocabulary, in the paper over the
    tokens that occur in the group.
    Reductions: eta = 1 is GRPO with beta = kl. beta = inf is too, where the right responses help each other; beta =
    −inf with eta = 0 then learns from right responses alone.
    """
    penalties = (ReferenceKl(kl),) if kl else ()
    weights = (SignalWeight(SparedTokens(beta, eta)),)
    return Objective(
        GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), weights=weights, penalties=penalties
    )


Lean = Annotated[float, inside(-1, 1).because("or advantages would vanish or change sign")]

Mask = Annotated[bool, "tokens that hardly move the right responses get no gradient"]


class HiddenReward(Signal):
    """1 + p · sign THR, and 0 where |THR| does not exceed the threshold; 1 in groups of equal rewards."""

    p: Lean
    mask: Mask
    by: Influence = Influence()

    def __call__(self, rollouts: Rollouts) -> Tensor:
        influence = rollouts.need("influence")
        right, wrong, _, least = sides(rollouts)
        factor = 1 + self.p * torch.where(right[:, None], influence, -influence).sign()
        if self.mask:
            factor = factor * (influence.double().abs() > least[:, None])
        return torch.where((right | wrong)[:, None], factor, 1.0)


@Paper(
    "Token Hidden Reward: Steering Exploration-Exploitation in Group Relative Deep Reinforcement Learning",
    "2510.03669",
    "second-hand + reconstructed",
    "the exact weight, the value of p and the threshold are unknown",
)
def thr(
    *,
    p: Annotated[Lean, "tokens that make right responses likelier get the factor 1 + p, the others 1 − p"] = 0.1,
    mask: Mask = True,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Raises (p > 0) or lowers (p < 0) the advantages of tokens that make right responses more likely.

    The parts are known from reviews; form, size and threshold of the factor are ours.

        THR_jk = s_jk on right responses, −s_jk on wrong ones   (s: `influence`, see nthr)
        tau    = min_{i right} 1/|o_i| Σ_k s_ik
        A_jk   = A_j · 1[|THR_jk| > tau] · (1 + p · sign THR_jk)
        J = GRPO's with A_jk in place of A_j

    THR > 0 marks the tokens through which a GRPO step makes the right responses more likely. p > 0 leans towards them
    (exploitation), p < 0 away from them (exploration).
    Defaults: p 0.1 (ours; the value was not found); clip 0.2/0.2 as in GRPO. The denominator counts every token.
    Options: mask=False keeps the tokens of small |THR|.
    Departures: right means a reward above the group's mean. A negative tau silences nothing.
    Reductions: p = 0 with mask=False is GRPO.
    """
    weights = (SignalWeight(HiddenReward(p, mask)),) if p or mask else ()
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), weights=weights)


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
    """Weighs tokens more at positions where the next-token distributions of the group differ.

        L_itv = log-probability of token v at position t of response i, −log of the vocabulary's size where it has ended
        L̄_tv = mean_i L_itv
        d_t = mean_i Σ_v (exp(D) − D − 1),   D = L̄_tv − L_itv clamped to ±11      (`divergence`)
        w_t = 1 + (alpha − 1) · (d_t − min d) / (max d − min d + 1e-8)
        A_i = (R_i − mean_g R) / (std_g R + 1e-4)
        J = 1/Σ|o_i| Σ_i Σ_t w_t · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    The mean over i and the extremes of d are of one group. The sum over the vocabulary has no probabilities for
    weights: d is not a divergence between distributions, and the tail dominates it.
    Defaults: alpha 1.7, clip 0.2/0.28 (the authors' code and script).
    Departures: d is the old policy's and w has no gradient; the authors' code takes the current policy's with its
    gradient. The extremes run over positions with tokens; the code's run over padding too, so its weights depend on the
    width of the batch.
    Reductions: alpha = 1 is DAPO with dual=None and 1e-4 added to the deviation. Equal d everywhere is alpha = 1.
    """
    credit, weights = GroupAdvantage(eps=1e-4), (SignalWeight(PositionWeight(alpha)),) if alpha != 1 else ()
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), weights=weights)
