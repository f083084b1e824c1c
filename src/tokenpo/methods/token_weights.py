"""Weights of tokens and responses that a single paper uses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.ops.group import Groups
from ..core.ops.ratio import BOUND
from ..core.parts.aggregate import SequenceMean, TokenMean
from ..core.parts.credit import GroupAdvantage
from ..core.parts.part import MemorySignal, Signal, Weight
from ..core.parts.penalties import ReferenceKl
from ..core.parts.ratio import Ratio
from ..core.parts.surrogate import Clip, FixedBounds
from ..core.parts.weights import BatchWeight, SignalWeight
from ..core.ranges import AboveOne, AboveZero, Count, NotNegative, Number, Positive, at_least, inside
from ..core.types import Batch, Rollouts, Trust
from .options import Beta, High, Low
from .paper import Paper

# Of the weight of a wrong token whose ratio is beyond the safety.
_SAFE = 0.8, 1.0

Decay = Annotated[AboveZero, "tokens after which a later token counts half"]
Least = Annotated[NotNegative, "smallest weight"]
Most = Annotated[NotNegative, "largest weight"]
Safety = Annotated[AboveZero, "ratio of a wrong token above which its weight is at most 1"]


@dataclass(frozen=True)
class FutureWeight(BatchWeight):
    """exp of the discounted sum of the log-ratios from a token on, bounded; ratios above `dual` count in no sum."""

    idle_on_policy = True
    decay: Decay
    least: Least
    most: Most
    safety: Safety
    dual: AboveOne | None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(most=at_least(self.least).because("the smallest weight"))

    def of_batch(self, batch: Batch) -> Tensor:
        x = Ratio.log(batch).detach()
        ratio = x.exp()
        moved = masked.keep(x if self.dual is None else torch.where(ratio > self.dual, 0.0, x), batch.mask)
        weight = discounted(moved, 2 ** (-1 / self.decay)).exp().clamp(self.least, self.most)
        risky = (batch.credit.advantage < 0) & (ratio > self.safety)
        return torch.where(risky, weight.clamp(*_SAFE), weight)


def discounted(x: Tensor, gamma: float) -> Tensor:
    """Σ_{k ≥ t} γ^(k−t) x_k of each row [N, T], in steps that double the window."""
    total, window = x, 1
    while window < x.shape[1]:
        ahead = torch.zeros_like(total)
        ahead[:, :-window] = total[:, window:]
        total, window = total + gamma**window * ahead, 2 * window
    return total


@Paper(
    "FIPO", "2603.19835", "code", "a framework's code, whose defaults these are; the paper was not read",
    code="modelscope/ms-swift@3602360:swift/rlhf_trainers/grpo_trainer.py",
)  # fmt: skip
def fipo(
    *,
    decay: Decay = 32.0,
    least: Least = 1.0,
    most: Most = 1.2,
    safety: Safety = 4.0,
    dual: Annotated[AboveOne | None, "dual clip; tokens beyond it count in no weight"] = None,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Tokens are weighed by how the policy has moved on what follows them.

        d_it = log r_it, 0 where r_it > dual;   F_it = Σ_{k ≥ t} γ^(k−t) d_ik,   γ = 2^(−1/decay)
        f_it = clip(exp F_it, least, most);   where A_i < 0 and r_it > safety: clip(f_it, 0.8, 1)
        J = 1/Σ|o_i| Σ_i Σ_t sg[f_it] · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i),   dual clip where A_i < 0

    A token counts more where the update has made what follows it likelier, and, if `least` allows it, less where it has
    become less likely. k − t counts positions, tool tokens included, where d is 0; the first `decay` have half the
    weight.
    Defaults: decay 32, weights in [1, 1.2], safety 4, no dual clip, clip 0.2/0.2 (ms-swift's settings, which set none
    of them for the method). Its example has dual 10, high 0.28, weights in [0.8, 1.2], safety 3.
    Departures: the authors' code, read in a fork, has decay 128 and dual 3, and drops responses with more than one
    token beyond the dual clip, also from the denominator. Log-ratios are bounded to ±20.
    Reductions: least = most = 1 is DAPO with these bounds. At lp = lp_old all weights are 1.
    """
    weight = FutureWeight(decay, least, most, safety, dual)
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high), dual=dual), TokenMean(), weights=(weight,))


History = Annotated[Count, "batches whose mean reward the anchor averages"]


@dataclass(frozen=True)
class Ease(MemorySignal):
    """p̂_g − C: how much better a group did than the batches before, [N, T] in units of the reward.

    Remembers the mean rewards of the last batches by age, "1" the last; `current` counts the batch itself among them.
    """

    history: History
    current: bool

    def start(self) -> Mapping[str, float]:
        return {}

    def after(self, numbers: Mapping[str, float], rollouts: Rollouts) -> Mapping[str, float]:
        everyone = Groups.of(rollouts.group, rollouts.mask.any(1)).one()
        # By age, as a store may sort "10" before "2".
        before = [numbers[str(age)] for age in range(1, len(numbers) + 1)]
        newest = [float(everyone.mean_std(rollouts.reward)[0][0]), *before]
        return {str(age): mean for age, mean in enumerate(newest[: self.history], 1)}

    def __call__(self, rollouts: Rollouts, numbers: Mapping[str, float]) -> Tensor:
        known = numbers if numbers and not self.current else self.after(numbers, rollouts)
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        ease = groups.mean_std(rollouts.reward)[0] - sum(known.values()) / len(known)
        return ease[:, None].expand(rollouts.mask.shape)


@dataclass(frozen=True)
class DifficultyWeight(Weight):
    """scale · exp(−sign(A) (p̂_g − C)), the exponent bounded to ±20 as a log-ratio is."""

    scale: Positive
    ease: Ease

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        advantage = batch.credit.advantage
        weight = self.scale * (-advantage.sign() * batch.signal(self.ease)).clamp(-BOUND, BOUND).exp()
        return weight.to(advantage.dtype)


@Paper(
    "Your Group-Relative Advantage Is Biased", "2601.08521", "code", "the paper's filtered anchor",
    code="yangfengkai/HA-DW@8b08794:verl/trainer/ppo/core_algos.py; "
    "yangfengkai/HA-DW@8b08794:verl/trainer/ppo/ray_trainer.py",
)  # fmt: skip
def ha_dw(
    *,
    scale: Annotated[Positive, "factor on every weight"] = 1.3,
    history: History = 10,
    anchor: Annotated[Literal["prior", "current"], '"prior" batches only, or the "current" one too'] = "prior",
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Advantages grow on hard prompts answered right and on easy ones answered wrong.

        C    = mean of the last `history` batch means of the reward: what the policy can do on average
        D_i  = −sign(A_i) · sign(p̂_g − C),   M = |p̂_g − C|      (p̂_g: the group's mean reward)
        Φ_i  = scale · exp(D_i M)
        J    = 1/N Σ_i 1/|o_i| Σ_t min(r_it Φ_i A_i, clip(r_it, 1−low, 1+high) Φ_i A_i),   A = (R − mean) / std

    On a prompt harder than usual, right answers count more and wrong ones less; on an easy one the reverse.
    Defaults: scale 1.3 (the best in the paper's table), history 10 (the authors' script), clip 0.2/0.2.
    Options: anchor="current" counts the batch itself in C, as the authors' code does, with scale 1.5.
    Departures: a group of one learns nothing; the authors' code gives it mean 0 and deviation 1. The paper's other
    anchor, a filter with a forgetting rate, is left out: its constants are not given. Before the first batch C is the
    batch's own mean. An engine counts all groups that it sampled; under dynamic sampling the batch's own mean, in the
    first batch and with anchor="current", is that of the kept groups. The exponent is bounded to ±20: rewards are meant
    to lie in [0, 1].
    Reductions: scale = 1 and p̂_g = C everywhere is GRPO; the factor `scale` alone only changes the learning rate.
    """
    weight = DifficultyWeight(scale, Ease(history, anchor == "current"))
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), weights=(weight,))


FLOOR = 1e-8


@dataclass(frozen=True)
class PositionWeight(Signal):
    """1 where the group's divergence is least, rising linearly to `alpha` where it is largest."""

    reads = {"divergence"}
    alpha: NotNegative

    def __call__(self, rollouts: Rollouts) -> Tensor:
        mask, divergence = rollouts.mask, rollouts.need("divergence")
        d = divergence.double()
        groups = Groups.of(rollouts.group, mask.any(1))
        low, _ = groups.extremes(d.masked_fill(~mask, torch.inf).amin(1))
        _, high = groups.extremes(d.masked_fill(~mask, -torch.inf).amax(1))
        share = (d - low[:, None]) / (high - low + FLOOR)[:, None]
        return torch.where(mask, 1 + (self.alpha - 1) * share, 1.0).to(divergence.dtype)


@Paper(
    "Reinforcing Video Reasoning with Focused Thinking", "2505.24718", "code",
    code="longmalongma/TW-GRPO@aa529ff:src/open_r1/trainer/grpo_trainer.py",
)  # fmt: skip
def tw_grpo(
    *, alpha: Annotated[NotNegative, "largest weight; the smallest is 1"] = 1.7, low: Low = 0.2, high: High = 0.28
) -> Objective:
    """Tokens weigh more at positions where the group's next-token distributions lie apart.

        L_itv = log-probability of token v at position t of response i, −log V where it has ended;  L̄_tv = mean_i L_itv
        d_t = mean_i Σ_v (exp(D) − D − 1),   D = L̄_tv − L_itv clamped to ±11                             (`divergence`)
        w_t = 1 + (alpha − 1) · (d_t − min d) / (max d − min d + 1e-8)
        A_i = (R_i − mean_g R) / (std_g R + 1e-4)
        J = 1/Σ|o_i| Σ_i Σ_t w_t · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    The mean over i and the extremes of d are of one group. The sum over the vocabulary has no probabilities for
    weights: d is no divergence between distributions, and the tail dominates it.
    Defaults: alpha 1.7, clip 0.2/0.28 (the authors' code and script).
    Departures: d is the old policy's, at the temperature of sampling, and w has no gradient; the authors' code takes
    the current policy's with its gradient. The extremes run over the positions at which a response of the group goes
    on; the code's run over the padding too, so that its weights depend on the width of the batch. The code's KL term
    has coefficient 0 in the script. Soft rewards for several choices and inverted questions belong to the data.
    Reductions: alpha = 1 is DAPO with dual=None and 1e-4 added to the deviation. Equal d everywhere is alpha = 1.
    """
    credit, weights = GroupAdvantage(eps=1e-4), (SignalWeight(PositionWeight(alpha)),) if alpha != 1 else ()
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), weights=weights)


class Sides(NamedTuple):
    """The two sides of every group, parted by its mean reward; a group of equal rewards has none.

    Args:
        right: [N] bool, the reward exceeds the group's mean.
        wrong: [N] bool, it does not.
        share: [N] share of right responses in the group.
        least: [N] smallest mean influence of a token of a right response of the group; +inf where there is none.
    """

    right: Tensor
    wrong: Tensor
    share: Tensor
    least: Tensor


def sides(rollouts: Rollouts) -> Sides:
    """Sides in float64, so that thresholds do not depend on rounding. Rows without a response token are on no side."""
    groups = Groups.of(rollouts.group, rollouts.mask.any(1))
    right = groups.above_mean(rollouts.reward)
    mean = masked.mean(rollouts.need("influence").double(), rollouts.mask, dim=1)[:, 0]
    least, _ = Groups(groups.index, groups.count, right).extremes(mean)
    share = groups.mean_std(right)[0]
    return Sides(right, groups.varied(rollouts.reward) & ~right, share, least)


Beyond = Annotated[Number, "threshold of the influence, over the least mean influence of a right response; may be ±inf"]
Factor = Annotated[NotNegative | None, "factor on selected tokens; None takes 2 |1/2 − share of right responses|"]


@dataclass(frozen=True)
class SparedTokens(Signal):
    """eta at the tokens of wrong responses whose influence on the right ones exceeds the threshold, 1 elsewhere."""

    reads = {"influence"}
    beta: Beyond
    eta: Factor

    def __call__(self, rollouts: Rollouts) -> Tensor:
        influence = rollouts.need("influence")
        _, wrong, share, least = sides(rollouts)
        selected = wrong[:, None] & (influence.double() > (self.beta * least)[:, None])
        eta = 2 * (0.5 - share).abs() if self.eta is None else torch.full_like(share, self.eta)
        return torch.where(selected, eta[:, None], 1.0).to(influence.dtype)


@Paper(
    "On the Effect of Negative Gradient in Group Relative Deep Reinforcement Optimization", "2505.18830", "paper",
    "the displayed formulas are from an implementation note; that a response's mean counts its influence on itself is "
    "our reading",
)  # fmt: skip
def nthr(*, beta: Beyond = 1.0, eta: Factor = None, low: Low = 0.2, high: High = 0.2, kl: Beta = 1e-4) -> Objective:
    """Tokens of wrong responses that make right ones likely are pushed down less.

    The displayed formulas were lost in the text that was read; an implementation note that agrees with it has them.

        s_jk = Σ_{i right} Σ_l ⟨g_jk, g_il⟩ ⟨h_jk, h_il⟩,   g = one-hot − π_old, h the final hidden state  (`influence`)
        tau  = beta · min_{i right} 1/|o_i| Σ_k s_ik
        A_jk = eta · A_j where j is wrong and s_jk > tau, else A_j;   eta = 2 |1/2 − share of right responses|
        J = GRPO's with A_jk in place of A_j

    A step on token k of response j changes the log-likelihood of the right responses by s_jk times its advantage, to
    first order in the weights of the head: a wrong token with a large s drags them down.
    Defaults: beta 1, eta as above, clip 0.2/0.2, kl 1e-4 against the reference (paper, section 7.3). The paper's
    dynamic sampling is a setting of the engine.
    Departures: right means a reward above the group's mean, as rewards need not be binary. s runs over the whole
    vocabulary; the paper restricts it to the tokens that occur in the group. The mean of a right response counts its
    influence on itself. tau can be negative, and then nearly every wrong token is selected.
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


@dataclass(frozen=True)
class HiddenReward(Signal):
    """1 + p · sign THR, and 0 where |THR| does not exceed the threshold; 1 in groups of equal rewards."""

    reads = {"influence"}
    p: Lean
    mask: Mask

    def __call__(self, rollouts: Rollouts) -> Tensor:
        influence = rollouts.need("influence")
        right, wrong, _, least = sides(rollouts)
        factor = 1 + self.p * torch.where(right[:, None], influence, -influence).sign()
        if self.mask:
            factor = factor * (influence.double().abs() > least[:, None])
        return torch.where((right | wrong)[:, None], factor, 1.0)


@Paper(
    "Token Hidden Reward: Steering Exploration-Exploitation in Group Relative Deep Reinforcement Learning",
    "2510.03669", "second-hand + reconstructed", "the exact weight, the value of p and the threshold are open",
)  # fmt: skip
def thr(
    *,
    p: Annotated[Lean, "tokens that make right responses likelier get the factor 1 + p, the others 1 − p"] = 0.1,
    mask: Mask = True,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Advantages lean on the tokens that make right responses more likely, or away from them.

    The parts are told by reviews; the form of the factor, its size and its threshold are ours. The score s is NTHR's.

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
