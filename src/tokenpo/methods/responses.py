"""One ratio, weight or class for a whole response."""

import math
from typing import Annotated, Literal

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked, ratio
from ..core.ops.group import Groups
from ..core.parts.correction import Strayed
from ..core.parts.credit import GroupAdvantage
from ..core.parts.loss import ConstantLength, ReferenceKl, Reweighted, SequenceMean, TokenMean
from ..core.parts.part import BatchSignal, CreditStage, Look, Part, SurrogateStage
from ..core.parts.surrogate import (
    Bounds,
    Clip,
    DetachedClip,
    FixedBounds,
    GeometricSequence,
    GeometricToken,
    LogLikelihood,
    ProductSequence,
    Ratio,
    TokenRatio,
)
from ..core.parts.weights import BatchWeight, Drop, SignalWeight
from ..core.ranges import AboveZero, Finite, Limit, NotNegative, Positive, Share
from ..core.types import Batch, Rollouts, Trust
from .options import High, Low
from .paper import TRL, Paper


class GeometricMean(SurrogateStage):
    """s_i A with token log-ratios clipped to [−low, high] on the side of the advantage before they are averaged."""

    of_response = True
    own_slope = True
    low: Limit
    high: Limit

    def __call__(self, batch: Batch) -> Trust:
        advantage, x = batch.credit.advantage, Ratio.log(batch)
        kept = torch.where(advantage < 0, x.clamp(min=-self.low), x.clamp(max=self.high))
        mean = ratio.geometric(kept, batch.mask)
        clipped = (kept.detach() != x.detach()) & (advantage != 0)
        return Trust(mean * advantage, mean, math.exp(-self.low), math.exp(min(self.high, ratio.BOUND)), clipped)


@Paper("Geometric-Mean Policy Optimization", "2507.20673", "code", code="callsys/GMPO@205b2bf:train_zero_math_gmpo.py")
def gmpo(
    *,
    low: Annotated[Limit, "clip of the log-ratio below, where the advantage is negative"] = 0.4,
    high: Annotated[Limit, "clip of the log-ratio above, where it is positive"] = 0.4,
) -> Objective:
    """One ratio for the response: the geometric mean of its clipped token ratios.

        x̃_it = min(lr_it, high) where A_it ≥ 0, max(lr_it, −low) where A_it < 0,   lr = lp − lp_old
        s_i = exp(mean_t x̃_it)
        J = 1/N Σ_i 1/|o_i| Σ_t s_i A_it

    Defaults: low = high = 0.4, bounds of the log-ratio (ratios 0.67 and 1.49).
    Departures: the authors' code adds 1e-8 to the deviation of the rewards.
    Reductions: with responses of one token it is GRPO with the clip e^−0.4, e^0.4; unclipped it is GSPO's sequence
    ratio.
    """
    return Objective(GroupAdvantage(), GeometricMean(low, high), SequenceMean())


@Paper(
    "Length-Unbiased Sequence Policy Optimization: Revealing and Controlling Response Length Variation in RLVR",
    "2602.05261",
    "code",
    "the clip range is unknown; a framework's code was read, not the authors'",
    code=TRL,
)
def luspo(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """GSPO's ratio per response, with a sum over the tokens in place of their mean.

        s_i = exp(mean_t log r_it)
        J = 1/N Σ_i |o_i| · min(s_i A_i, clip(s_i, 1−low, 1+high) A_i)

    The length cancels the one inside s_i: an unclipped token has the weight s_i A_i / N, in a response of any length.
    Defaults: clip 0.2/0.2, a framework's default for every loss.
    Reductions: with responses of equal length L it is L times GSPO, value and gradient. A response of one token has
    GRPO's clipped ratio. At lp = lp_old it moves along the sum of A lp over all tokens, as DAPO does.
    """
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high), ratio=GeometricSequence()), ConstantLength(1.0))


LEAST = math.log(1e-8)
LEAST_RATE = 1e-4


class Gamma(Part):
    """φ(W) = e^rate · W^shape · e^(−rate W): the shape of a gamma distribution's density, scaled to φ(1) = 1."""

    shape: NotNegative
    rate: NotNegative

    def __call__(self, log_weight: Tensor) -> Tensor:
        rate = max(self.rate, LEAST_RATE)
        log = rate + self.shape * log_weight - rate * log_weight.exp()
        return log.exp().nan_to_num(posinf=0.0)


class SoftWeight(SurrogateStage):
    """sg[φ(W)] · A · lp with the ratio W of the whole response; φ by the sign of the advantage, 0 counts as positive.

    `inside`: weights of tokens that W is multiplied by, their logarithms bounded to [log 1e-8, 20].
    """

    of_response = True
    own_slope = True
    positive: Gamma
    negative: Gamma
    inside: BatchWeight | None = None

    def __call__(self, batch: Batch) -> Trust:
        advantage = batch.credit.advantage
        log = Ratio.log(batch).detach()
        if self.inside is not None:
            log = log + self.inside.of_batch(batch).log().clamp(LEAST, ratio.BOUND)
        log_weight = ratio.log_product(log, batch.mask, floor=LEAST)
        phi = torch.where(advantage < 0, self.negative(log_weight), self.positive(log_weight))
        # Only a weight that rounding made 0 takes a token's gradient away.
        gone = (phi == 0) & (advantage != 0)
        return Trust(phi * advantage * batch.policy.logprob, log_weight.exp(), 0.0, math.inf, gone)


@Paper(
    "VESPO: Variational Sequence-Level Soft Policy Optimization for Stable Off-Policy LLM Training",
    "2602.10693",
    "code",
    "the authors' docstring contradicts the constants of their code; of the paper only the pseudocode was read",
    code=f"FloyedShen/VESPO@aa1f304:recipe/vespo/code/core_algos.py; {TRL}",
)
def vespo(
    *,
    k_pos: Annotated[NotNegative, "power of the response's ratio, where the advantage is positive"] = 2.0,
    lambda_pos: Annotated[NotNegative, "decay with the ratio, where the advantage is positive"] = 3.0,
    k_neg: Annotated[NotNegative, "power of the ratio, where the advantage is negative"] = 3.0,
    lambda_neg: Annotated[NotNegative, "decay with the ratio, where the advantage is negative"] = 2.0,
) -> Objective:
    """Weights the policy gradient by a smooth function of the whole response's likelihood ratio.

        log W_i = Σ_t log r_it, bounded to [log 1e-8, 20]
        φ(W) = e^lambda · W^k · e^(−lambda W),   its constants by the sign of A_i (0 counts as positive)
        J = 1/Σ|o_i| Σ_i Σ_t sg[φ(W_i)] · A_i · lp_it   (appendix)

    φ(1) = 1, and the largest weight is at W = k/lambda: with the defaults at 2/3 for right answers, at 1.5 for wrong
    ones.
    Defaults: k 2 and lambda 3 where A ≥ 0, k 3 and lambda 2 where A < 0 (the authors' code and a framework's; the
    docstring of the authors' code has other numbers).
    Departures: the anchor is the old policy; TRL puts the correction for the sampler into W, here `SoftWeight.inside`.
    The authors' code takes the token mean of the micro-batch.
    Reductions: at lp = lp_old the gradient is REINFORCE's with group advantages, as is DAPO's. Up to the factor e^(1e-4
    (1 − W)), k = lambda = 0 is that for any W, and k = 1, lambda = 0 is the importance weight of whole responses.
    """
    return Objective(GroupAdvantage(), SoftWeight(Gamma(k_pos, lambda_pos), Gamma(k_neg, lambda_neg)), TokenMean())


class EvenShare(Part):
    """The share of the token ratio in a token's objective [N, T]: 1/2."""

    def __call__(self, batch: Batch) -> Tensor:
        return torch.full_like(batch.policy.logprob, 0.5)


class EntropyShare(Part):
    """Its share [N, T] without gradient: H_old over its maximum in the response; 1/2 if that maximum is 0."""

    of_response = True
    reads = {"old_entropy"}

    def __call__(self, batch: Batch) -> Tensor:
        entropy = batch.need("old_entropy").clamp(min=0)  # 0 on padding; rounding may have left it below
        most = entropy.amax(1, keepdim=True)
        return torch.where(most > 0, entropy / most, 0.5)


class MixOfMins(SurrogateStage):
    """a · min(r A, clip(r) A) + (1 − a) · min(s A, clip(s) A): token ratio r and response ratio s, `share` gives a."""

    of_response = True
    own_slope = True
    token: FixedBounds
    sequence: FixedBounds
    share: EvenShare | EntropyShare

    def __call__(self, batch: Batch) -> Trust:
        a = self.share(batch)
        one, other = Clip(self.token)(batch), Clip(self.sequence, GeometricToken())(batch)
        # A bound without a share may be infinite.
        upper = torch.where(a > 0, a * one.upper, 0.0) + torch.where(a < 1, (1 - a) * other.upper, 0.0)
        return Trust(
            a * one.value + (1 - a) * other.value,
            a * one.ratio + (1 - a) * other.ratio,
            a * one.lower + (1 - a) * other.lower,
            upper,
            (one.clipped | (a == 0)) & (other.clipped | (a == 1)),
        )


@Paper(
    "Orchestrating Tokens and Sequences: Dynamic Hybrid Policy Optimization for RLVR",
    "2601.05607",
    "reconstructed",
    "only the abstract could be read: mixture, weights, clips and denominator are ours",
)
def dhpo(
    *,
    mixing: Annotated[Literal["average", "entropy"], "half and half, or by the old policy's entropy"] = "average",
    low: Annotated[Share, "clip of the token ratio below"] = 0.2,
    high: Annotated[Limit, "clip of the token ratio above"] = 0.28,
    sequence_low: Annotated[Share, "clip of the sequence ratio below"] = 3e-4,
    sequence_high: Annotated[Limit, "clip of the sequence ratio above"] = 4e-4,
) -> Objective:
    """Clips the token's ratio and the response's ratio separately and mixes them.

        s_it = sg[s_i] · exp(lp − sg[lp]),   s_i = exp(mean_t log r_it)
        J_it = a_it min(r A, clip(r, 1−low, 1+high) A) + (1 − a_it) min(s A, clip(s, 1−sequence_low, 1+sequence_high) A)
        J = 1/N Σ_i 1/|o_i| Σ_t J_it
        average: a_it = 1/2;   entropy: a_it = H_old,it / max_t H_old,it, 1/2 where that maximum is 0

    From the abstract: weights mix the two ratios, by average or guided by entropy, and each ratio is constrained in its
    own region first. All else is our reading. All defaults are ours: GRPO's clip with DAPO's upper side for tokens,
    GSPO's clip for responses.
    Options: mixing="entropy" trusts the token ratio where the old policy hesitated; direction and scale are our guess.
    Reductions: a = 1 is GRPO, a = 0 is GSPO-token. At lp = lp_old the gradient is theirs for any a.
    """
    share = {"average": EvenShare(), "entropy": EntropyShare()}[mixing]
    bounds = FixedBounds(low, high), FixedBounds(sequence_low, sequence_high)
    return Objective(GroupAdvantage(), MixOfMins(*bounds, share), SequenceMean())


@Paper(
    "DeepSeek-V3.2: Pushing the frontier of open large language models",
    "2512.02556",
    "code",
    "its equation 9 was read through the comments of two frameworks only; delta is not the paper's",
    code=f"{TRL}; THUDM/slime@624b824:slime/backends/megatron_utils/loss.py",
)
def opsm(
    *,
    delta: Annotated[AboveZero, "largest mean log-ratio of a wrong response, nats"] = 0.5,
    anchor: Annotated[Literal["old", "rollout"], "the policy of lp_b, the log-probabilities before the update"] = "old",
    low: Low = 0.2,
    high: High = 0.2,
    beta: Annotated[NotNegative, "coefficient of the unbiased divergence from the reference"] = 0.0,
) -> Objective:
    """Masks wrong responses that the policy has moved away from.

        keep_i = 0 where A_i < 0 and mean_t(lp_b,it − lp_it) > delta, 1 elsewhere;   lp_b: before the update
        J = 1/N Σ_i 1/|o_i| Σ_t [ keep_i · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)
                                  − beta r_it k3(lp_ref,it − lp_it) ]

    A wrong response that the policy would hardly give any more only adds noise. The divergence is multiplied by the
    ratio; its expected gradient is then that of the current policy's divergence.
    Defaults: delta 0.5 is the example in TRL's help, where it is off by default; slime's is 1e-4. beta 0, as in TRL.
    GRPO's clip.
    Options: anchor="rollout" takes lp_b from the sampler, as TRL does if it has it; anchor="old" is slime's default.
    Departures: masked responses count in the denominators and keep their divergence, as in TRL and slime; ms-swift
    masks the divergence too.
    Reductions: delta = inf, beta = 0 is GRPO. With anchor="old" it does nothing at lp = lp_old.
    """
    drop, penalties = Drop(Strayed(delta, anchor == "rollout")), (Reweighted(ReferenceKl(beta)),) if beta else ()
    return Objective(
        GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), weights=(drop,), penalties=penalties
    )


class Label(CreditStage):
    """1 for a response above the mean reward of its group, −1 for the others; 0 where all rewards are equal."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups, reward = Groups.of(rollouts.group, rollouts.mask.any(1)), rollouts.reward + bonus
        label = torch.where(groups.above_mean(reward), 1.0, -1.0) * groups.varied(reward)
        return label.to(rollouts.old_logprob.dtype)[:, None].expand(rollouts.mask.shape)


class Slope(BatchSignal):
    """|∂L_g/∂s_i| · N/G of each response, at its tokens [N, T]; `SequenceMean` makes it the mean over groups."""

    tau: Positive

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        alive = batch.mask.any(1)
        groups = Groups.of(batch.rollouts.group, alive)
        label = masked.mean(batch.credit.advantage, batch.mask, dim=1)[:, 0].sign()
        score = masked.mean(Ratio.log(batch).detach(), batch.mask, dim=1)[:, 0]
        power = -label * score / self.tau
        right, wrong = ((label == sign) & alive for sign in (1, -1))
        # Each class's powers less their largest, or 0: an exponential may overflow.
        tops = [groups.extremes(torch.where(some, power, 0.0))[1].clamp(min=0) for some in (right, wrong)]
        top = torch.where(label > 0, *tops)
        each = (power - top).exp()
        sums = [groups.sum(torch.where(some, each, 0.0)) for some in (right, wrong)]
        slope = each / ((-top).exp() + torch.where(label > 0, *sums)) / self.tau
        # An update that holds one class of a group cannot classify it.
        both = (groups.sum(right.long()) > 0) & (groups.sum(wrong.long()) > 0)
        slope = torch.where(both, slope, 0.0)
        share = alive.sum().to(slope.dtype) / len(batch.rollouts.group[alive].unique())
        return (share * slope)[:, None].expand(batch.mask.shape)


class AnyPolicy(LogLikelihood):
    """A lp, off-policy too: a weight or a penalty depends on the response's log-ratio."""

    assumes_on_policy = False


@Paper(
    "Rewards as Labels: Revisiting RLVR from a Classification Perspective",
    "2602.05630",
    "code",
    "a framework's code and documentation were read, not the paper",
    code="modelscope/ms-swift@3602360:swift/rlhf_trainers/grpo_trainer.py",
)
def real(*, tau: Annotated[Positive, "temperature of the classification, nats per token"] = 0.5) -> Objective:
    """Classifies the right and wrong responses of a group by their mean log-ratio.

        s_i = mean_t log r_it;   right: R_i > mean_g R, wrong: the others of a group that has both
        L_g = log(1 + Σ_right e^(−s_i/tau)) + log(1 + Σ_wrong e^(s_i/tau)),   0 for a group with one class
        L = 1/G Σ_g L_g,   G: all groups of the step
        J = 1/G Σ_i sg[−∂L_g/∂s_i] · mean_t lp_it

    There is no advantage and no clip. The push on a response is a softmax weight in its group, at most 1/tau, and fades
    once the response is far on its side. The loss joins all responses of a group, so it needs the whole step. J has the
    gradient of −L, but not its value.
    Defaults: tau 0.5 (ms-swift's documentation, which quotes the paper).
    Departures: ms-swift divides by the groups of a micro-batch. If an update holds only part of a group, that part is
    classified.
    Reductions: at lp = lp_old, n right and m wrong: a right response is pushed by 1/(tau (n + 1)), a wrong one by
    1/(tau (m + 1)) down, spread over its tokens.
    """
    return Objective(Label(), AnyPolicy(), SequenceMean(), weights=(SignalWeight(Slope(tau)),))


class SignedOutcome(CreditStage):
    """1 where the reward exceeds the threshold, −1 elsewhere, whatever the group; shaping is added."""

    threshold: Finite

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        outcome = torch.where(rollouts.reward > self.threshold, 1.0, -1.0).to(bonus.dtype) + bonus
        return outcome[:, None].expand(rollouts.mask.shape)


class Tapered(Bounds):
    """Exactly 1 where the advantage is not negative, [0, 1] where it is."""

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        advantage = batch.credit.advantage
        return (advantage >= 0).to(advantage.dtype), torch.ones_like(advantage)


@Paper(
    "Tapered Off-Policy REINFORCE: Stable and efficient reinforcement learning for LLMs",
    "2503.14286",
    "second-hand",
    "threshold and denominator are ours; the token level is a framework's code, not the paper's",
)
def topr(
    *,
    level: Annotated[Literal["sequence", "token"], "ratio of a whole response or of each token"] = "sequence",
    signal: Annotated[
        Literal["outcome", "advantage"], "±1 by the outcome, or the advantage over the group's mean reward"
    ] = "outcome",
    threshold: Annotated[Finite, 'with signal="outcome" a response is right when its reward exceeds this'] = 0.5,
) -> Objective:
    """Makes right answers likelier, and wrong ones less likely as far as the policy still gives them.

        A_i = 1 where R_i > threshold, −1 elsewhere;   signal="advantage": A_i = R_i − mean_g R
        W_i = Π_t r_it;   level="token": W_it = r_it
        a_i = 1 where A_i ≥ 0, min(sg W_i, 1) where A_i < 0
        J = 1/N Σ_i Σ_t a_i A_i lp_it

    Pushing down answers that the policy no longer gives makes REINFORCE unstable off-policy: their weight tapers off.
    Defaults: the ratio of whole responses and rewards of ±1 without a baseline (the paper's rule, second-hand). The
    threshold 0.5 is ours. There is no clip and no divergence.
    Options: level="token" is a framework's form, which it applies to advantages; read in its code.
    Departures: the anchor is the old policy; the paper's is the policy that sampled. The mean is over the responses of
    the step, the paper's sum over the data set.
    Reductions: at lp = lp_old it is REINFORCE on the sum of log-probabilities. Right answers alone are RAFT with
    another denominator.
    """
    ratio = {"sequence": ProductSequence(), "token": TokenRatio()}[level]
    credit = {"outcome": SignedOutcome(threshold), "advantage": GroupAdvantage(std=False)}[signal]
    return Objective(credit, DetachedClip(Tapered(), ratio), ConstantLength(1.0))
