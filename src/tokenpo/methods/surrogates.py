"""Surrogates, trust regions and penalties that a single paper uses."""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import kl, ratio
from ..core.ops.ratio import log_ratio
from ..core.parts import Bounds, DetachedClip, FixedBounds, Region, SelectedBounds
from ..core.parts.aggregate import SequenceMean, TokenMean
from ..core.parts.credit import GroupAdvantage
from ..core.parts.part import Part, Penalty, SurrogateStage
from ..core.parts.ratio import Ratio, RolloutRatio, TokenRatio
from ..core.parts.selection import HighInResponse, Selection
from ..core.parts.surrogate import LogLikelihood, Unclipped, nowhere
from ..core.parts.weights import BatchWeight, Keep
from ..core.ranges import AboveOne, Limit, NotNegative, Positive, Share
from ..core.types import Batch, Trust
from .options import DualOfScripts, High, Low, OfPolicy, OfResponse
from .paper import TRL, VERL, Paper


@dataclass(frozen=True)
class SoftGate(SurrogateStage):
    """4/tau · sigmoid(tau (r − 1)) · A."""

    own_slope = True
    tau_pos: Positive
    tau_neg: Positive

    def __call__(self, batch: Batch) -> Trust:
        ratio, advantage = TokenRatio()(batch), batch.credit.advantage
        tau = torch.where(advantage > 0, ratio.new_tensor(self.tau_pos), ratio.new_tensor(self.tau_neg))
        gate = 4 / tau * (1 - (tau * (1 - ratio)).sigmoid())
        return Trust(gate * advantage, ratio, 0.0, math.inf, nowhere(batch))


@Paper("Soft Adaptive Policy Optimization", "2511.20347", "code", code=f"{VERL}; {TRL}")
def sapo(
    *,
    tau_pos: Annotated[Positive, "steepness of the gate for positive advantages"] = 1.0,
    tau_neg: Annotated[Positive, "steepness for the others"] = 1.05,
) -> Objective:
    """Tokens fade out smoothly as their ratio leaves 1, instead of being cut off.

        f_it = 4/tau · sigmoid(tau (r_it − 1)),   tau = tau_pos where A_i > 0, tau_neg elsewhere
        J = 1/N Σ_i 1/|o_i| Σ_t f_it A_i

    Defaults: tau_pos 1.0, tau_neg 1.05 (code): wrong tokens fade a little faster.
    Departures: the gate is evaluated as 4/tau · (1 − sigmoid(tau (1 − r))): the same number, whose gradient does not
    vanish by rounding at large ratios.
    Reductions: f has slope 1 at r = 1, so at lp = lp_old the gradient is GRPO's.
    """
    return Objective(GroupAdvantage(), SoftGate(tau_pos, tau_neg), SequenceMean())


@dataclass(frozen=True)
class GeometricMean(SurrogateStage):
    """s_i A with token log-ratios clipped to [−low, high] on the side of the advantage before they are averaged."""

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

    Defaults: low = high = 0.4, bounds of the *log*-ratio (ratios 0.67 and 1.49).
    Departures: the authors' code adds 1e-8 to the deviation of the rewards, here 1e-6. Log-ratios are bounded to ±20
    first. With token advantages the value is s_i times their mean.
    Reductions: with responses of one token it is GRPO with the clip e^−0.4, e^0.4; unclipped it is GSPO's sequence
    ratio.
    """
    return Objective(GroupAdvantage(), GeometricMean(low, high), SequenceMean())


@dataclass(frozen=True)
class Asymmetric(SurrogateStage):
    """min(1/r, dual) A for A ≥ 0 and min(r, dual) A for A < 0 inside the bounds; no gradient outside them."""

    own_slope = True
    bounds: Bounds
    dual: AboveOne

    def __call__(self, batch: Batch) -> Trust:
        ratio, advantage = TokenRatio()(batch), batch.credit.advantage
        lower, upper = self.bounds(batch)
        still, negative = ratio.detach(), advantage < 0
        outside = torch.where(negative, still < lower, still > upper)
        kept = torch.where(negative, still.clamp(min=lower), 1 / still.clamp(max=upper))
        weighted = kept.clamp(max=self.dual) * advantage
        # sg[weight] A r / sg[r] has the value of the weight, and a slope in r inside the bounds.
        value = weighted * torch.where(outside, 1.0, ratio / still)
        return Trust(value, ratio, lower, upper, outside & advantage.bool())


@Paper(
    "ASPO: Asymmetric Importance Sampling Policy Optimization", "2510.06062", "code",
    code="wizard-III/Archer2.0@b08d963:verl/trainer/ppo/core_algos.py; "
    "wizard-III/Archer2.0@b08d963:verl/workers/actor/dp_actor.py",
)  # fmt: skip
def aspo(
    *,
    low_eps: Annotated[Share, "clip of tokens with low entropy"] = 0.2,
    high_eps: Annotated[Share, "clip of tokens with high entropy"] = 0.4,
    quantile: OfResponse = 0.8,
    dual: Annotated[AboveOne, "largest weight of a gradient"] = 3.0,
    entropy: OfPolicy = "old",
) -> Objective:
    """Positive tokens are weighted by the inverse ratio, with wider bounds where entropy is high.

        e_it = high_eps where H_it > the quantile of its response, low_eps elsewhere
        A > 0: c = min(1/r, dual), no gradient where r > 1 + e
        A < 0: c = min(r, dual),   no gradient where r < 1 − e
        J = 1/Σ|o_i| Σ_i Σ_t c_it A_i,   with the gradient c A ∇lp

    The usual ratio strengthens most the right tokens that are already likely; its inverse strengthens those that lag. A
    token beyond `dual` keeps a gradient with that weight, unlike under the usual dual clip.
    Defaults: eps 0.2 / 0.4, response quantile 0.8, dual 3 (the authors' code).
    Departures: entropies are the old policy's; entropy="current" takes the current one's, as the authors' code does.
    The quantile is nearest-rank, theirs interpolates. Beyond `dual` the value is dual · A, theirs dual · A · lp; the
    gradient is the same.
    Reductions: at lp = lp_old the gradient is DAPO's.
    """
    high, low = FixedBounds(high_eps, high_eps), FixedBounds(low_eps, low_eps)
    bounds = SelectedBounds(HighInResponse(quantile, entropy == "current"), high, low)
    return Objective(GroupAdvantage(), Asymmetric(bounds, dual), TokenMean())


@dataclass(frozen=True)
class GradientPreserving(SurrogateStage):
    """r A inside the clip; outside, the bound times beta1 (below) or beta2 (above) as the weight of the gradient; at
    least `dual` · A where A < 0 (dual clip, off with None)."""

    own_slope = True
    bounds: FixedBounds
    beta1: NotNegative
    beta2: NotNegative
    dual: AboveOne | None = None

    def __call__(self, batch: Batch) -> Trust:
        ratio, advantage = TokenRatio()(batch), batch.credit.advantage
        lower, upper = self.bounds(batch)
        still = ratio.detach()
        below, above = (still < lower) & (advantage < 0), (still > upper) & (advantage > 0)
        scale = torch.where(below, self.beta1 * lower / still, torch.where(above, self.beta2 * upper / still, 1.0))
        value, clipped = scale * ratio * advantage, scale == 0
        if self.dual is not None:
            least = self.dual * advantage
            cut = (advantage < 0) & (value.detach() < least)
            value, clipped = torch.where(cut, least, value), clipped | cut
        return Trust(value, ratio, lower, upper, clipped)


@Paper(
    "CE-GPPO: Coordinating Entropy via Gradient-Preserving Clipping Policy Optimization in Reinforcement Learning",
    "2509.20712", "code", code="Kwai-Klear/CE-GPPO@10558fe:verl/trainer/ppo/core_algos.py",
)  # fmt: skip
def ce_gppo(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    beta1: Annotated[NotNegative, "coefficient of wrong tokens below the clip"] = 0.75,
    beta2: Annotated[NotNegative, "coefficient of right tokens above it"] = 1.0,
    dual: DualOfScripts = None,
) -> Objective:
    """Clipped tokens keep a gradient whose weight is the bound times a coefficient.

        A < 0 and r < 1 − low:   c = beta1 (1 − low)
        A > 0 and r > 1 + high:  c = beta2 (1 + high)
        elsewhere:               c = r
        J = 1/Σ|o_i| Σ_i Σ_t c_it A_i,   with the gradient c A ∇lp

    Pushing wrong tokens that have become unlikely further down raises the entropy, pushing right ones that have become
    likely further up lowers it: beta1 and beta2 weigh the two.
    Defaults: beta1 0.75 and beta2 1 (the authors' 7B script; 0.5 and 1 for 1.5B), clip 0.2/0.2.
    Departures: the authors' code ends with a dual clip, J ≥ dual · A where A < 0, with 10 in their scripts; the
    formulas have none, and none is the default.
    Reductions: beta1 = beta2 = 0 is DAPO with dual=None, up to the value of the clipped tokens.
    """
    return Objective(GroupAdvantage(), GradientPreserving(FixedBounds(low, high), beta1, beta2, dual), TokenMean())


LEAST = math.log(1e-8)
LEAST_RATE = 1e-4


@dataclass(frozen=True)
class Gamma(Part):
    """φ(W) = e^rate · W^shape · e^(−rate W): the shape of a gamma distribution's density, scaled to φ(1) = 1."""

    shape: NotNegative
    rate: NotNegative

    def __call__(self, log_weight: Tensor) -> Tensor:
        rate = max(self.rate, LEAST_RATE)
        log = rate + self.shape * log_weight - rate * log_weight.exp()
        return log.exp().nan_to_num(posinf=0.0)


@dataclass(frozen=True)
class SoftWeight(SurrogateStage):
    """sg[φ(W)] · A · lp with the ratio W of the whole response; φ by the sign of the advantage, 0 counts as positive.

    `inside`: weights of tokens that W is multiplied by, their logarithms bounded to [log 1e-8, 20].
    """

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
        # A weight that vanished in rounding is the only thing that cuts a token off.
        gone = (phi == 0) & (advantage != 0)
        return Trust(phi * advantage * batch.policy.logprob, log_weight.exp(), 0.0, math.inf, gone)


@Paper(
    "VESPO: Variational Sequence-Level Soft Policy Optimization for Stable Off-Policy LLM Training", "2602.10693",
    "code", "the constants: the authors' docstring contradicts their code; of the paper only the pseudocode was read",
    code=f"FloyedShen/VESPO@aa1f304:recipe/vespo/code/core_algos.py; {TRL}",
)  # fmt: skip
def vespo(
    *,
    k_pos: Annotated[NotNegative, "power of the response's ratio, where the advantage is positive"] = 2.0,
    lambda_pos: Annotated[NotNegative, "decay with the ratio, likewise"] = 3.0,
    k_neg: Annotated[NotNegative, "power of the ratio, where the advantage is negative"] = 3.0,
    lambda_neg: Annotated[NotNegative, "decay with the ratio, likewise"] = 2.0,
) -> Objective:
    """The policy gradient, weighted by a smooth function of how far the whole response has moved.

        log W_i = Σ_t log r_it, bounded to [log 1e-8, 20]
        φ(W) = e^lambda · W^k · e^(−lambda W),   its constants by the sign of A_i (0 counts as positive)
        J = 1/Σ|o_i| Σ_i Σ_t sg[φ(W_i)] · A_i · lp_it

    φ(1) = 1, and the largest weight is at W = k/lambda: with the defaults at 2/3 for right answers, at 1.5 for wrong
    ones.
    Defaults: k 2 and lambda 3 where A ≥ 0, k 3 and lambda 2 where A < 0 (the authors' code and a framework's; the
    docstring of the authors' code has other numbers). As in both codes, a lambda below 1e-4 counts as 1e-4, and a φ
    that overflows as 0.
    Departures: the anchor is the old policy; the TRL engine fills `SoftWeight.inside`, the framework's correction for
    the sampler inside W. The authors' code takes the token mean of the micro-batch. W is a product: for long responses
    it is far from 1.
    Reductions: at lp = lp_old the gradient is that of REINFORCE with group advantages, DAPO's. Up to the factor e^(1e-4
    (1 − W)), k = lambda = 0 is that for any W, and k = 1, lambda = 0 is the importance weight of whole responses.
    """
    return Objective(GroupAdvantage(), SoftWeight(Gamma(k_pos, lambda_pos), Gamma(k_neg, lambda_neg)), TokenMean())


@dataclass(frozen=True)
class Regularised(LogLikelihood):
    """A · lp beside a penalty that holds the policy: it assumes no on-policy batch."""

    assumes_on_policy = False


@dataclass(frozen=True)
class ToOld(Penalty):
    """beta/2 · (lp − lp_old)²."""

    idle_on_policy = True
    beta: NotNegative

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return self.beta * kl.k2(Ratio.log(batch))


@Paper(
    "Offline Regularised Reinforcement Learning for Large Language Models Alignment", "2405.19107", "code",
    "the papers were not read, two frameworks were; the advantage is not the method's soft one; beta is an example's",
    code=VERL,
)  # fmt: skip
def dro(*, beta: Annotated[NotNegative, "of half the squared log-ratio to the old policy"] = 0.05) -> Objective:
    """The log-likelihood, weighed by the advantage and held to the old policy.

        J = 1/Σ|o_i| Σ_i Σ_t [ A_i lp_it − beta/2 (lp_it − lp_old,it)² ]

    Its gradient is (A_i − beta log r_it) ∇lp_it: the push on a token ends where its log-ratio is A/beta.
    Defaults: beta 0.05, the example of Tinker's documentation; verl has none and asks for it. The token mean is verl's.
    Departures: the advantage is GRPO's; the method's is soft, which Tinker leaves to its user and verl to its
    estimators. Tinker compares with the sampler's log-probabilities and sums over tokens; Kimi k1.5 (2501.12599) is
    named beside the paper. verl's correction for the sampler weighs the square too, here the first term alone.
    Log-ratios stay within ±20.
    Reductions: beta = 0 is REINFORCE with GRPO's advantage. On the first update the square is idle.
    """
    surrogate, penalties = (Regularised(), (ToOld(beta),)) if beta else (LogLikelihood(), ())
    return Objective(GroupAdvantage(), surrogate, TokenMean(), penalties=penalties)


Fall = Annotated[NotNegative, "largest fall of a probability that is pushed down"]
Rise = Annotated[NotNegative, "largest rise of one that is pushed up"]


@dataclass(frozen=True)
class NearSampler(Selection):
    """Tokens whose probability has not moved too far from the sampler's in the direction of their advantage."""

    reads = {"rollout_logprob"}
    low: Fall
    high: Rise

    def __call__(self, batch: Batch) -> Tensor:
        moved = batch.policy.logprob.detach().exp() - batch.need("rollout_logprob").exp()
        return torch.where(batch.credit.advantage > 0, moved <= self.high, moved >= -self.low)


@dataclass(frozen=True)
class SquaredLogRatio(Penalty):
    """coef · (lp − lp_roll)²."""

    reads = {"rollout_logprob"}
    coef: NotNegative

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return self.coef * log_ratio(batch.policy.logprob, batch.need("rollout_logprob")).square()


@Paper(
    "Rethinking the Trust Region in LLM Reinforcement Learning (prime-rl's default loss)", "2602.04879", "code",
    "a framework's loss: DPPO's mask and another paper's penalty, read in its code",
    code="PrimeIntellect-ai/prime-rl@559b447:src/prime_rl/trainer/rl/loss.py",
)  # fmt: skip
def prime_rl(
    *, low: Fall = 0.2, high: Rise = 0.2, kl: Annotated[NotNegative, "of the squared log-ratio to the sampler"] = 1e-3
) -> Objective:
    """The ratio to the sampler, masked by how far the probability has moved.

        q_it = exp(lp_it − lp_roll,it),   d_it = exp(lp_it) − exp(lp_roll,it)
        keep_it = d_it ≤ high where A_i > 0, d_it ≥ −low elsewhere
        J = 1/Σ|o_i| Σ_i Σ_t [ keep_it · q_it A_i − kl (log q_it)² ],   A_i = R_i − mean_g R

    There is no old policy: rollouts may be several updates old, and the ratio is to whoever sampled. The penalty is on
    dropped tokens too.
    Defaults: low and high 0.2, kl 1e-3 (its settings; its documentation shows a capped ratio, its code has none).
    Departures: log q is bounded to ±20, flat beyond. Its trainer leaves groups without an advantage out of the batch;
    here they stay, with their penalty.
    Reductions: kl = 0 has the gradient of dppo_tv with that threshold, without its cap, on the advantage of dr_grpo. At
    lp = lp_roll the penalty is idle.
    """
    weights, penalties = (Keep(NearSampler(low, high)),), (SquaredLogRatio(kl),) if kl else ()
    return Objective(
        GroupAdvantage(std=False), Unclipped(RolloutRatio()), TokenMean(), weights=weights, penalties=penalties
    )


@dataclass(frozen=True)
class Between(Region):
    """Tokens whose ratio to the sampler lies strictly inside (1 − low, 1 + high)."""

    low: Share
    high: Limit

    def __call__(self, batch: Batch) -> Tensor:
        ratio = RolloutRatio()(batch).detach()
        return (ratio > 1 - self.low) & (ratio < 1 + self.high)


@Paper(
    "GLM-5 (SkyRL's rollout_is)", "2602.15763", "code", "the paper's equation was not read: a framework's loss",
    code="NovaSky-AI/SkyRL@a956457:skyrl/backends/skyrl_train/utils/ppo_utils.py",
)  # fmt: skip
def rollout_is(*, low: Annotated[Share, "bound below"] = 0.2, high: Annotated[Limit, "bound above"] = 0.2) -> Objective:
    """Tokens that the sampler found likelier or less likely by more than this are dropped.

        q_it = exp(lp_it − lp_roll,it)
        J = 1/Σ|o_i| Σ_i Σ_t sg[q_it · 1(1 − low < q_it < 1 + high)] · A_i · lp_it

    One ratio corrects at once for the engine that sampled and for the updates since. A token outside the bounds has no
    gradient, whatever the sign of its advantage; CISPO keeps a bounded one there.
    Defaults: 0.2 and 0.2, the clip of SkyRL's PPO.
    Departures: the advantage is GRPO's, which SkyRL sets apart from the loss. The log-ratio is bounded to ±20.
    Reductions: unbounded, it has the gradient of q A: DPPO without its region and cap.
    """
    surrogate = DetachedClip(FixedBounds(1.0, math.inf), RolloutRatio(), Between(low, high))
    return Objective(GroupAdvantage(), surrogate, TokenMean())
