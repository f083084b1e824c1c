"""What a reward is made into: a worth by length, a sign, a label."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.ops.group import Groups
from ..core.parts.aggregate import ConstantLength, SequenceMean, TokenMean
from ..core.parts.credit import GroupAdvantage
from ..core.parts.part import BatchSignal, CreditStage, Look, Shaping
from ..core.parts.penalties import ReferenceKl
from ..core.parts.ratio import ProductSequence, Ratio, TokenRatio
from ..core.parts.surrogate import Bounds, Clip, DetachedClip, FixedBounds, LogLikelihood
from ..core.parts.weights import SignalWeight
from ..core.ranges import AboveZero, Finite, NotNegative, Positive
from ..core.types import Batch, Rollouts
from .options import Beta, Dual, High, Low, Threshold
from .paper import Paper

Scale = Annotated[NotNegative, "of the cosine in the length"]
Shift = Annotated[Finite, "added to the cosine"]
Cap = Annotated[AboveZero, "largest reward for the length"]
Additive = Annotated[bool, "correctness plus the reward for the length, rather than their product"]
ByScore = Annotated[bool, "multiply by the reward of a right answer rather than by 1, as in the authors' code"]


@dataclass(frozen=True)
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
    "Hybrid Median-length Policy Optimization", "2606.01934", "code",
    code="weekdaymore/HMPO@23d6dc5:verl/experimental/reward_loop/reward_manager/hmpo.py",
)  # fmt: skip
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
    """The reward of a right answer falls with its length and ends at the median of its group.

        c_i = 1[R_i > threshold],   b = median of |o_j| over the responses of the group with c_j = 1
        f(n) = clip(scale · cos(π n / 2b) + shift, 0, cap) where n ≤ b, 0 beyond
        R'_i = f(|o_i|) · c_i;   additive: c_i + f(|o_i|) · c_i
        A_i = (R'_i − mean_g R') / (std_g R' + 1e-6)
        J = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ],  dual where A_i < 0

    A right answer that is longer than the median of the right ones is worth as little as a wrong one.
    Defaults: scale 1, shift 0.8, cap 1, clip 0.2/0.28, dual clip 10, k3 coefficient 0.001 (the authors' script): f is 1
    up to n = 0.87 b, and 0.8 at b.
    Options: additive=True keeps 1 for every right answer (the authors' ablation).
    Departures: the authors' code multiplies by the score itself: by_score=True puts R_i in place of c_i at right
    answers. It takes a score of −1 for 0 and keeps the sign of other negative ones; here a wrong answer is worth 0. Its
    script also subtracts a divergence of 0.001 from the reward. Lengths are response tokens. The variant with a fixed
    length in place of the median is not implemented.
    Reductions: shift ≥ 1 with cap 1 rewards right answers up to the median with 1. A single right answer of a group is
    worth f(b) = shift, capped.
    """
    shaping = (MedianLength(scale, shift, cap, additive, threshold, by_score),)
    penalties = (ReferenceKl(beta),) if beta else ()
    clip = Clip(FixedBounds(low, high), dual=dual)
    return Objective(GroupAdvantage(), clip, TokenMean(), shaping=shaping, penalties=penalties)


@dataclass(frozen=True)
class SignedOutcome(CreditStage):
    """±1 by whether the reward exceeds the threshold, whatever the group; shaping is added."""

    threshold: Finite

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        outcome = torch.where(rollouts.reward > self.threshold, 1.0, -1.0).to(bonus.dtype) + bonus
        return outcome[:, None].expand(rollouts.mask.shape)


@dataclass(frozen=True)
class Tapered(Bounds):
    """Exactly 1 where the advantage is not negative, [0, 1] where it is."""

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        advantage = batch.credit.advantage
        return (advantage >= 0).to(advantage.dtype), torch.ones_like(advantage)


@Paper(
    "Tapered Off-Policy REINFORCE: Stable and efficient reinforcement learning for LLMs", "2503.14286", "second-hand",
    "threshold and denominator are ours; the token level is a framework's code, not the paper's",
)  # fmt: skip
def topr(
    *,
    level: Annotated[Literal["sequence", "token"], "ratio of a whole response or of each token"] = "sequence",
    signal: Annotated[
        Literal["outcome", "advantage"], "±1 by the outcome, or the advantage over the group's mean reward"
    ] = "outcome",
    threshold: Annotated[Finite, 'with signal="outcome" a response is right when its reward exceeds this'] = 0.5,
) -> Objective:
    """Log-likelihood up for right answers, down for wrong ones as far as the policy still gives them.

        A_i = 1 where R_i > threshold, −1 elsewhere;   signal="advantage": A_i = R_i − mean_g R
        W_i = Π_t r_it;   level="token": W_it = r_it
        a_i = 1 where A_i ≥ 0, min(sg W_i, 1) where A_i < 0
        J = 1/N Σ_i Σ_t a_i A_i lp_it

    Pushing down what the policy no longer says makes REINFORCE unstable off-policy: the weight of wrong answers tapers
    off.
    Defaults: the ratio of whole responses and rewards of ±1 without a baseline (the paper's rule, second-hand). The
    threshold 0.5 is ours. There is no clip and no divergence.
    Options: level="token" is a framework's form, which it applies to advantages; read in its code.
    Departures: the anchor is the old policy; the paper's is the policy that sampled. The mean is over the responses of
    the step, the paper's sum over the data set. The log of W is bounded to ±20.
    Reductions: at lp = lp_old it is REINFORCE on the sum of log-probabilities. Right answers alone are RAFT with
    another denominator.
    """
    ratio = {"sequence": ProductSequence(), "token": TokenRatio()}[level]
    credit = {"outcome": SignedOutcome(threshold), "advantage": GroupAdvantage(std=False)}[signal]
    return Objective(credit, DetachedClip(Tapered(), ratio), ConstantLength(1.0))


@dataclass(frozen=True)
class Label(CreditStage):
    """1 for a response above the mean reward of its group, −1 for the others; 0 where all rewards are equal."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups, reward = Groups.of(rollouts.group, rollouts.mask.any(1)), rollouts.reward + bonus
        label = torch.where(groups.above_mean(reward), 1.0, -1.0) * groups.varied(reward)
        return label.to(rollouts.old_logprob.dtype)[:, None].expand(rollouts.mask.shape)


@dataclass(frozen=True)
class Slope(BatchSignal):
    """|∂L_g/∂s_i| · N/G of each response, shown at its tokens [N, T]: `SequenceMean` makes it the mean over groups."""

    tau: Positive

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator | None) -> Tensor:
        alive = batch.mask.any(1)
        groups = Groups.of(batch.rollouts.group, alive)
        label = masked.mean(batch.credit.advantage, batch.mask, dim=1)[:, 0].sign()
        score = masked.mean(Ratio.log(batch).detach(), batch.mask, dim=1)[:, 0]
        each = (-label * score / self.tau).exp()
        right, wrong = (groups.sum(torch.where(label == sign, each, 0.0)) for sign in (1, -1))
        slope = each / (1 + torch.where(label > 0, right, wrong)) / self.tau
        # An update that holds one class of a group has nothing to tell apart.
        slope = torch.where((right > 0) & (wrong > 0), slope, 0.0)
        share = alive.sum().to(slope.dtype) / len(batch.rollouts.group[alive].unique())
        return (share * slope)[:, None].expand(batch.mask.shape)


@dataclass(frozen=True)
class ByLabel(LogLikelihood):
    """±lp: its weight looks at how far the response has moved."""

    assumes_on_policy = False


@Paper(
    "Rewards as Labels: Revisiting RLVR from a Classification Perspective", "2602.05630", "code",
    "a framework's code and documentation; the paper was not read",
    code="modelscope/ms-swift@3602360:swift/rlhf_trainers/grpo_trainer.py",
)  # fmt: skip
def real(*, tau: Annotated[Positive, "temperature of the classification, nats per token"] = 0.5) -> Objective:
    """Right and wrong responses of a group are told apart by their mean log-ratio.

        s_i = mean_t log r_it;   right: R_i > mean_g R, wrong: the others of a group that has both
        L_g = log(1 + Σ_right e^(−s_i/tau)) + log(1 + Σ_wrong e^(s_i/tau)),   0 for a group with one class
        L = 1/G Σ_g L_g,   G: all groups of the step
        J = 1/G Σ_i sg[−∂L_g/∂s_i] · mean_t lp_it

    There is no advantage and no clip: the push on a response is a softmax weight in its group, at most 1/tau, that
    fades once the response is far on its side. The loss joins all responses of a group, so phase two first looks at the
    whole step and takes the slope of each response; J has the gradient of −L at that point, but not its value.
    Defaults: tau 0.5 (ms-swift's documentation, which quotes the paper).
    Departures: ms-swift divides by the groups of a micro-batch, here by those of the step. A group that an update holds
    in part is classified by the rows that are there. Log-ratios are bounded to ±20.
    Reductions: at lp = lp_old, n right and m wrong: a right response is pushed by 1/(tau (n + 1)), a wrong one by
    1/(tau (m + 1)) down, spread over its tokens.
    """
    return Objective(Label(), ByLabel(), SequenceMean(), weights=(SignalWeight(Slope(tau)),))
