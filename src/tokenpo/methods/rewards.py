"""Rewards that are reshaped, or compared in other ways, before they become advantages."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from torch import Tensor

from ..base.errors import TokenPOError
from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.ops.masked import deviations, whiten
from ..core.ops.ratio import BOUND
from ..core.parts.credit import GroupAdvantage
from ..core.parts.loss import ReferenceKl, SequenceMean, TokenMean
from ..core.parts.part import CreditStage, MemorySignal, Shaping, Weight
from ..core.parts.surrogate import Clip, FixedBounds
from ..core.ranges import FINITE, POSITIVE, AboveZero, Count, Finite, NotNegative, Positive, Range
from ..core.types import Batch, Rollouts, Trust
from .options import Beta, Dual, High, Low, Threshold
from .paper import TRL, VERL, Paper


class OverMean(CreditStage):
    """The reward over the group's mean reward, less 1 if `centred`; `hopeless` gives −1 where no answer is right."""

    centred: bool = True
    hopeless: bool = False
    eps: Annotated[float, POSITIVE.because("as a group without a right answer has mean 0")] = 1e-6

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups, reward = _comparable(rollouts, bonus)
        mean = groups.mean_std(reward)[0]
        if self.centred:
            advantage = torch.where(groups.varied(reward), (reward - mean) / (mean + self.eps), 0.0)
        else:
            advantage = reward / (mean + self.eps)
        if self.hopeless:
            advantage = torch.where(mean > 0, advantage, -1.0)
        return torch.where(groups.size() > 1, advantage, 0.0)[:, None].expand(rollouts.mask.shape)


class Truncated(CreditStage):
    """1 for right answers; for wrong ones minus the sum of the terms 2 to `order` of the series of log p."""

    order: Count

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups, reward = _comparable(rollouts, bonus)
        size = groups.size()
        wrong = groups.sum((reward <= 0).double())
        term, total = torch.ones_like(reward), torch.zeros_like(reward)
        for k in range(1, min(self.order, int(wrong.max()))):
            # C(f−1, k) / C(G−1, k) from its predecessor; 0 from k = f on.
            term = term * (wrong - k) / (size - k).clamp(min=1)
            total = total + term
        advantage = torch.where(reward > 0, 1.0, -total)
        return torch.where(size > 1, advantage, 0.0)[:, None].expand(rollouts.mask.shape)


def _comparable(rollouts: Rollouts, bonus: Tensor) -> tuple[Groups, Tensor]:
    """The groups and their rewards [N], which must not be negative."""
    groups = Groups.of(rollouts.group, rollouts.mask.any(1))
    reward = rollouts.reward + bonus
    if (reward[groups.valid] < 0).any():
        raise TokenPOError(
            f"maxrl needs rewards >= 0, whose mean is a rate of success, got {float(reward[groups.valid].min()):g}: "
            "give rewards of 0 and 1, and leave out penalties on the length"
        )
    return groups, reward


@Paper(
    "Maximum Likelihood Reinforcement Learning",
    "2602.02710",
    "code",
    "the aggregate is unknown; clip and the truncation of each baseline are second-hand",
    code="tajwarfahim/maxrl@c0698eb:verl/trainer/ppo/core_algos.py",
)
def maxrl(
    *,
    baseline: Annotated[
        Literal["practical", "kept", "none"], "advantage of a group without a right answer: 0, −1, or no baseline"
    ] = "practical",
    order: Annotated[Count | None, "truncate the series of log p here, in place of a baseline"] = None,
    low: Low = 0.2,
    high: High = 0.2,
    dual: Dual = 3.0,
) -> Objective:
    """The advantage is relative to the prompt's rate of success, so that hard prompts count more.

        J = E log p rather than E p, p the probability of a right answer;   −log p = Σ_{k ≥ 1} (1 − p)^k / k
        practical   A_i = (R_i − mean_g R) / (mean_g R + eps)
        kept        the same, and A_i = −1 where no answer is right
        none        A_i = R_i / (mean_g R + eps)
        order=T     A_i = 1 where R_i > 0, else −Σ_{k=2}^{min(T, f)} C(f−1, k−1) / C(G−1, k−1),   f wrong ones of G
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i),   at least dual · A_i where A_i < 0

    With K of G right a right answer gets G/K − 1, a wrong one −1.
    Defaults: the practical estimator and eps 1e-6 (the authors' code). Clip 0.2/0.2 and dual clip 3 are from their
    runs as others report them. The token mean is ours, their framework's default.
    Options: "none" and "kept" are unbiased estimates of the series truncated at T = G; "practical" truncates at T = G −
    1 (all second-hand). `order` truncates at T, without a baseline.
    Departures: a negative reward is an error, as the mean is a probability here.
    Reductions: with as many right as wrong answers the practical form is GRPO's with the population deviation. R − mean
    in place of (R − mean)/mean is Dr. GRPO's advantage. order = 1 is REINFORCE on right answers, without a baseline.
    """
    over_mean = {"practical": OverMean(), "kept": OverMean(hopeless=True), "none": OverMean(centred=False)}[baseline]
    if order is not None and baseline != "practical":
        raise TokenPOError(f"maxrl: order = {order} takes the place of the baseline: leave out baseline = {baseline!r}")
    credit = over_mean if order is None else Truncated(order)
    return Objective(credit, Clip(FixedBounds(low, high), dual=dual), TokenMean())


History = Annotated[Count, "batches whose mean reward the anchor averages"]


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
        # Read in order of age, as a checkpoint may sort "10" before "2".
        before = [numbers[str(age)] for age in range(1, len(numbers) + 1)]
        newest = [float(everyone.mean_std(rollouts.reward)[0][0]), *before]
        return {str(age): mean for age, mean in enumerate(newest[: self.history], 1)}

    def __call__(self, rollouts: Rollouts, numbers: Mapping[str, float]) -> Tensor:
        means = numbers if numbers and not self.current else self.after(numbers, rollouts)
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        ease = groups.mean_std(rollouts.reward)[0] - sum(means.values()) / len(means)
        return ease[:, None].expand(rollouts.mask.shape)


class DifficultyWeight(Weight):
    """scale · exp(−sign(A) (p̂_g − C)), the exponent bounded to ±20 as a log-ratio is."""

    scale: Positive
    ease: Ease

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        advantage = batch.credit.advantage
        weight = self.scale * (-advantage.sign() * batch.signal(self.ease)).clamp(-BOUND, BOUND).exp()
        return weight.to(advantage.dtype)


@Paper(
    "Your Group-Relative Advantage Is Biased",
    "2601.08521",
    "code",
    "the paper's filtered anchor is left out",
    code="yangfengkai/HA-DW@8b08794:verl/trainer/ppo/core_algos.py; "
    "yangfengkai/HA-DW@8b08794:verl/trainer/ppo/ray_trainer.py",
)
def ha_dw(
    *,
    scale: Annotated[Positive, "factor on every weight"] = 1.3,
    history: History = 10,
    anchor: Annotated[Literal["prior", "current"], '"prior" batches only, or the "current" one too'] = "prior",
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Weighs right answers to hard prompts and wrong answers to easy prompts more than the other answers.

        C    = mean of the last `history` batch means of the reward: what the policy can do on average
        D_i  = −sign(A_i) · sign(p̂_g − C),   M = |p̂_g − C|      (p̂_g: the group's mean reward)
        Φ_i  = scale · exp(D_i M)
        J    = 1/N Σ_i 1/|o_i| Σ_t min(r_it Φ_i A_i, clip(r_it, 1−low, 1+high) Φ_i A_i),   A = (R − mean) / std

    Defaults: scale 1.3 (the best in the paper's table), history 10 (the authors' script), clip 0.2/0.2.
    Options: anchor="current" counts the batch itself in C, as the authors' code does, with scale 1.5.
    Departures: the paper's other anchor, a filter with a forgetting rate, is left out: its constants are not given.
    Before the first batch C is the batch's own mean. Earlier means count all sampled groups, also those that dynamic
    sampling drops.
    Reductions: scale = 1 and p̂_g = C everywhere is GRPO; the factor `scale` alone only changes the learning rate.
    """
    weight = DifficultyWeight(scale, Ease(history, anchor == "current"))
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), weights=(weight,))


class BestMargin(CreditStage):
    """The lead of a group's best reward over the second best, for the one response that holds it; ties give 0."""

    std: bool = True
    eps: NotNegative = 1e-6

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = rollouts.reward + bonus
        best = reward == groups.extremes(reward)[1]
        others = Groups(groups.index, groups.count, groups.valid & ~best)
        margin = reward - others.extremes(reward)[1]
        if self.std:
            margin = margin / (groups.mean_std(reward)[1] + self.eps)
        alone = best & (groups.sum(best.long()) == 1) & (others.size() > 0)
        return torch.where(alone, margin, 0.0)[:, None].expand(rollouts.mask.shape)


@Paper(
    "Optimizing Language Models for Inference Time Objectives using Reinforcement Learning",
    "2503.19595",
    "code",
    "unknown: whether to divide by the deviation; the framework whose code was read does",
    code=VERL,
)
def grpo_passk(
    *,
    std: Annotated[bool, "divide the lead by the group's standard deviation"] = True,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Only a group's single best response learns, by its lead over the second best.

        R_(1) ≥ R_(2) ≥ ...   the rewards of the group, sorted
        A_i = (R_(1) − R_(2)) / (std_g R + eps) for the response that holds R_(1), 0 for all others
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    The group is worth its best response, max_j R_j; response i adds R_(1) − R_(2) to that if it is alone at the top.
    Defaults: the division by the deviation and eps 1e-6 are a framework's; the derivation has none: std=False. Clip
    0.2/0.2 and the token mean are the framework's usual loss.
    Departures: k is the size of the group.
    Reductions: with two responses and std=False it is RLOO's positive half: the better one gets R_(1) − R_(2), the
    other 0.
    """
    return Objective(BestMargin(std), Clip(FixedBounds(low, high)), TokenMean())


Scale = Annotated[NotNegative, "factor of the cosine in the length"]
Shift = Annotated[Finite, "added to the cosine"]
Cap = Annotated[AboveZero, "largest reward for the length"]
Additive = Annotated[bool, "correctness plus the reward for the length, rather than their product"]
ByScore = Annotated[bool, "multiply by the reward of a right answer rather than by 1, as in the authors' code"]


class MedianLength(Shaping):
    """The reward of a right answer as a function of its length, 0 beyond the median of the group's right ones."""

    scale: Scale
    shift: Shift
    cap: Cap
    additive: Additive
    threshold: Threshold
    by_score: ByScore = False

    def __call__(self, rollouts: Rollouts) -> Tensor:
        right = rollouts.mask.any(1) & (rollouts.reward > self.threshold)
        length = rollouts.mask.sum(1).double()
        median = Groups.of(rollouts.group, right).median(length)
        curve = (self.scale * torch.cos(math.pi / 2 * length / median) + self.shift).clamp(0.0, self.cap)
        worth = torch.where(right, rollouts.reward if self.by_score else 1.0, 0.0)
        reward = torch.where(right & (length <= median), curve * worth, 0.0)
        return reward + (worth if self.additive else 0.0) - rollouts.reward


@Paper(
    "Hybrid Median-length Policy Optimization",
    "2606.01934",
    "code",
    code="weekdaymore/HMPO@23d6dc5:verl/experimental/reward_loop/reward_manager/hmpo.py",
)
def hmpo(
    *,
    low: Low = 0.2,
    high: High = 0.28,
    dual: Dual = 10.0,
    scale: Scale = 1.0,
    shift: Shift = 0.8,
    cap: Cap = 1.0,
    additive: Additive = False,
    threshold: Threshold = 0.0,
    by_score: ByScore = False,
    beta: Beta = 1e-3,
) -> Objective:
    """The reward of a right answer falls with its length and is 0 beyond the median of its group's right answers.

        c_i = 1[R_i > threshold],   b = median of |o_j| over the responses of the group with c_j = 1
        f(n) = clip(scale · cos(90° · n / b) + shift, 0, cap) where n ≤ b, 0 beyond
        R'_i = f(|o_i|) · c_i;   additive: c_i + f(|o_i|) · c_i
        A_i = (R'_i − mean_g R') / (std_g R' + 1e-6)
        J = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ],  dual clip: A_i < 0

    Defaults: as in the authors' script: f is 1 up to n = 0.87 b, and 0.8 at b.
    Options: additive=True keeps 1 for every right answer (the authors' ablation).
    Departures: the authors' code multiplies by the score itself: by_score=True. It treats a score of −1 as 0 and keeps
    the sign of other negative ones; here a wrong answer is worth 0. Its script also subtracts a divergence of 0.001
    from the reward.
    Reductions: shift ≥ 1 with cap 1 rewards right answers up to the median with 1. A single right answer of a group is
    worth f(b) = shift, capped.
    """
    shaping = (MedianLength(scale, shift, cap, additive, threshold, by_score),)
    penalties = (ReferenceKl(beta),) if beta else ()
    clip = Clip(FixedBounds(low, high), dual=dual)
    return Objective(GroupAdvantage(), clip, TokenMean(), shaping=shaping, penalties=penalties)


Weights = Annotated[
    tuple[float, ...],
    Range("a list of finite numbers", lambda x: isinstance(x, tuple | list) and all(FINITE.holds(w) for w in x)),
]


class Decoupled(CreditStage):
    """Every reward normalised in its group; their weighted sum normalised over the batch.

    `tokens` normalises over the batch's tokens instead of its responses; `leave_one_out` compares a response with the
    others of its group. Without `weights` each reward counts 1.
    """

    across_groups = True
    reads = {"rewards"}
    eps: NotNegative
    batch_eps: NotNegative
    tokens: bool = False
    leave_one_out: bool = False
    weights: Weights = ()

    @property
    def columns(self) -> int:
        return len(self.weights)

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        rewards, mask = rollouts.need("rewards").double(), rollouts.mask
        if len(self.weights or rewards[0]) != rewards.shape[1]:
            raise TokenPOError(
                f"gdpo: {len(self.weights)} weights for the {rewards.shape[1]} columns of Rollouts.rewards: give one "
                "for each, in their order"
            )
        weights = (*(self.weights or (1.0,) * rewards.shape[1]), 1.0)
        scored = mask.any(1) & ~rewards.isnan().all(1)
        columns = torch.cat([rewards, bonus.double()[:, None]], 1).T
        total = torch.zeros_like(columns[0])
        for weight, column in zip(weights, columns, strict=True):
            given = scored & ~column.isnan()
            alike = Groups.of(rollouts.group, given)
            total += weight * self._of_group(alike, column.nan_to_num(0.0)).where(given, 0.0)
        if self.tokens:
            return whiten(total[:, None].expand(mask.shape), mask & scored[:, None])
        return _standard(total, scored, self.batch_eps)[:, None].expand(mask.shape)

    def _of_group(self, groups: Groups, x: Tensor) -> Tensor:
        """[N] one reward, normalised."""
        if not self.leave_one_out:
            return GroupAdvantage(eps=self.eps).of(groups, x)
        others = (groups.size() - 1).clamp(min=1)
        centre = groups.mean_std(x)[0]
        y = x - centre  # centred, so that the difference of squares below loses no precision
        mean = (groups.sum(y) - y) / others
        variance = ((groups.sum(y.square()) - y.square()) / others - mean.square()).clamp(min=0.0)
        std = (variance * others / (others - 1).clamp(min=1)).sqrt()  # ddof 1; 0 if there is only one other
        low, high = groups.extremes(y)
        alike = std <= 1e-7 * (high - low)  # 0 up to rounding, where the others are equal
        return torch.where(groups.varied(x), (y - mean) / torch.where(alike, 1.0, std + self.eps), 0.0)


def _standard(x: Tensor, valid: Tensor, eps: float) -> Tensor:
    """(x − mean) / (std + eps) of x [N] over the valid rows, ddof 1; 0 at other rows, and where all are equal."""
    out = torch.zeros_like(x)
    if valid.any():
        centred, variance = deviations(x[valid])
        out[valid] = centred / (variance.sqrt() + eps) if variance > 0 else centred
    return out


FORMS = {
    "trl": Decoupled(eps=1e-4, batch_eps=1e-4),
    "verl": Decoupled(eps=1e-6, batch_eps=0.0, tokens=True),
    "nemo_rl": Decoupled(eps=1e-6, batch_eps=0.0, leave_one_out=True),
}


@Paper(
    "GDPO: Group reward-Decoupled Normalization Policy Optimization for Multi-reward RL Optimization",
    "2601.05242",
    "code",
    code=f"{TRL}; {VERL}; NVIDIA-NeMo/RL@7ea279a:nemo_rl/algorithms/advantage_estimator.py",
)
def gdpo(
    *,
    form: Annotated[Literal["trl", "verl", "nemo_rl"], "the framework whose formula is used"] = "trl",
    weights: Annotated[Weights, "one for each reward function, in their order; () weighs each by 1"] = (),
    low: Low = 0.2,
    high: High = 0.2,
    beta: Beta = 0.0,
) -> Objective:
    """Normalises each of several rewards before adding them, so that none drowns another.

        a_ik = (R_ik − mean_g R_k) / (std_g R_k + eps),   u_i = Σ_k w_k a_ik
        A_i  = (u_i − mean u) / (std u + eps'),           mean and deviation over the rollout batch
        J = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ]

    Three frameworks have three forms, and each gives other numbers:

        trl      eps = eps' = 1e-4; over responses; a reward that does not apply is passed over
        verl     eps = 1e-6; over tokens, so that long responses count more; √(var u + 1e-8) in place of std u + eps'
        nemo_rl  mean and deviation of the other responses of the group, without division where these are equal or one
                 alone; eps = 1e-6; over responses, eps' = 0

    Defaults: TRL's form, which is one of the authors'. Weights, clip and token mean are ours.
    Departures: a shaping bonus is one more reward, of weight 1. Every form skips a missing (NaN) reward. verl takes the
    rewards of a group of one as they are.
    Reductions: none to GRPO: a group of equal rewards has an advantage where the batch's mean is not 0, so no rows may
    be skipped.
    """
    credit = dataclasses.replace(FORMS[form], weights=tuple(weights))
    penalties = (ReferenceKl(beta),) if beta else ()
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), penalties=penalties)
