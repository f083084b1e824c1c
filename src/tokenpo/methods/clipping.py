"""Other clips of the token's ratio to the old policy."""

import math
from typing import Annotated

import torch
from torch import Tensor

from ..core.facts import Fact, Kind
from ..core.objective import Objective
from ..core.ops import masked
from ..core.ops.ratio import k2
from ..core.parts.credit import GroupAdvantage
from ..core.parts.entropy import HighInResponse
from ..core.parts.loss import SequenceMean, TokenMean
from ..core.parts.part import Penalty, Sampler, Supplied, SurrogateStage
from ..core.parts.surrogate import (
    Bounds,
    Clip,
    DetachedClip,
    FixedBounds,
    LogLikelihood,
    Ratio,
    SelectedBounds,
    TokenRatio,
    nowhere,
)
from ..core.parts.weights import BatchWeight
from ..core.ranges import AboveOne, AboveZero, NotNegative, Positive, Share, at_least, limit, require
from ..core.types import Batch, Rollouts, Trust
from .options import Ceiling, Dual, DualOfScripts, Floor, High, Low, OfPolicy, OfResponse
from .paper import TRL, VERL, Paper


class Staleness(Supplied):
    """The input `staleness`, for `decoupled`; 0 in an engine that samples anew after every update."""

    gives = "staleness"
    fact = Fact(
        "updates of the policy since the one that sampled the token", Kind(">= 0", "it is >= 0", 0.0), scale=2.0
    )

    def supply(self, rollouts: Rollouts, sampler: Sampler) -> Tensor:
        return torch.zeros_like(rollouts.old_logprob)


class ProximalRatio(Ratio):
    """exp(lp − lp_prox), lp_prox = lp_old + (g − 1)/g · sg[lp − lp_old] with the staleness g; lp_old where g ≤ 1."""

    staleness: Staleness = Staleness()

    def __call__(self, batch: Batch) -> Tensor:
        x, gap = self.log(batch), batch.need("staleness").clamp(min=1)
        return (x - (gap - 1) / gap * x.detach()).exp()


@Paper(
    "AReaL: A Large-Scale Asynchronous Reinforcement Learning System for Language Reasoning",
    "2505.24298",
    "code",
    "the paper was not read",
    code="inclusionAI/AReaL@4aef98d:areal/trainer/ppo/actor.py",
)
def decoupled(*, low: Low = 0.2, high: High = 0.2, dual: Dual = None) -> Objective:
    """Clips around a policy between the sampler's and the current one, the nearer to it the older the token.

        g_it = updates since the policy that sampled the token,   lp_old = that policy's log-probability
        lp_prox = lp_old + (g_it − 1)/g_it · (sg[lp] − lp_old),   lp_old where g_it ≤ 1
        J = 1/Σ|o_i| Σ_i Σ_t min(u_it A_i, clip(u_it, 1−low, 1+high) A_i),   u_it = exp(lp_it − lp_prox,it)

    A stale token would be clipped for what the updates since have done to it. The policy before the latest update is
    interpolated from the two ends, without scoring the responses again (AReaL's prox_logp_method="loglinear").
    Defaults: clip 0.2/0.2, no dual clip (its settings).
    Departures: the advantage is GRPO's. The framework's weight exp(lp_prox − lp_old), off by default, is left out.
    Reductions: g ≤ 1 everywhere is DAPO with that clip.
    """
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high), ProximalRatio(), dual), TokenMean())


@Paper(
    "MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention",
    "2506.13585",
    "code",
    code=f"{VERL}; {TRL}",
)
def cispo(
    *,
    high: Ceiling = 0.28,
    low: Floor = 1.0,
    absolute: Annotated[bool, "`high` is the cap itself, ratio ≤ high, which is ≥ 1"] = False,
) -> Objective:
    """The importance weight is clipped and detached, so every token keeps a gradient.

        c_it = clip(r_it, 1−low, 1+high)   (section 3.1)
        J = 1/Σ|o_i| Σ_i Σ_t sg[c_it] · A_i · lp_it

    Defaults: high 0.28 is a framework's; the paper tunes it. low 1.0 leaves the lower side open, as the paper does.
    With absolute=True the cap is `high` itself: TRL's epsilon_high=5.0 is high=5.0, absolute=True.
    Reductions: at lp = lp_old the gradient is DAPO's.
    """
    if absolute:
        require("cispo", "high", high, limit(1).because("as absolute=True makes it the cap itself"))
    return Objective(GroupAdvantage(), DetachedClip(FixedBounds(low, high - 1 if absolute else high)), TokenMean())


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
    tau_neg: Annotated[Positive, "steepness of the gate for the other advantages"] = 1.05,
) -> Objective:
    """Tokens fade out smoothly as their ratio leaves 1, instead of being cut off.

        f_it = 4/tau · sigmoid(tau (r_it − 1)),   tau = tau_pos where A_i > 0, tau_neg elsewhere
        J = 1/N Σ_i 1/|o_i| Σ_t f_it A_i

    Defaults: tau_pos 1.0, tau_neg 1.05 (code): wrong tokens fade a little faster.
    Reductions: f has slope 1 at r = 1, so at lp = lp_old the gradient is GRPO's.
    """
    return Objective(GroupAdvantage(), SoftGate(tau_pos, tau_neg), SequenceMean())


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
    "ASPO: Asymmetric Importance Sampling Policy Optimization",
    "2510.06062",
    "code",
    code="wizard-III/Archer2.0@b08d963:verl/trainer/ppo/core_algos.py; "
    "wizard-III/Archer2.0@b08d963:verl/workers/actor/dp_actor.py",
)
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

    The usual ratio strengthens most the right tokens that are already likely; its inverse strengthens those that lag.
    A token beyond `dual` keeps a gradient with that weight, unlike under the usual dual clip.
    Defaults: as in the authors' code.
    Departures: entropies are the old policy's; entropy="current" takes the current one's, as the authors' code does.
    Beyond `dual` the value shown differs from theirs; the gradient is the same.
    Reductions: at lp = lp_old the gradient is DAPO's.
    """
    high, low = FixedBounds(high_eps, high_eps), FixedBounds(low_eps, low_eps)
    bounds = SelectedBounds(HighInResponse(quantile, entropy == "current"), high, low)
    return Objective(GroupAdvantage(), Asymmetric(bounds, dual), TokenMean())


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
    "2509.20712",
    "code",
    code="Kwai-Klear/CE-GPPO@10558fe:verl/trainer/ppo/core_algos.py",
)
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

    Pushing an unlikely wrong token further down lowers the entropy. Pushing an unlikely right one up raises it. beta1
    and beta2 weigh the two.
    Defaults: beta1 0.75 and beta2 1 (the authors' 7B script; 0.5 and 1 for 1.5B), clip 0.2/0.2.
    Departures: the authors' code ends with a dual clip, 10 in their scripts; the formulas have none.
    Reductions: beta1 = beta2 = 0 is DAPO with dual=None, up to the value of the clipped tokens.
    """
    return Objective(GroupAdvantage(), GradientPreserving(FixedBounds(low, high), beta1, beta2, dual), TokenMean())


class Regularised(LogLikelihood):
    """A · lp next to a penalty on the log-ratio, so the batch need not be on-policy."""

    assumes_on_policy = False


class ToOld(Penalty):
    """beta/2 · (lp − lp_old)²."""

    idle_on_policy = True
    beta: NotNegative

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return self.beta * k2(Ratio.log(batch))


@Paper(
    "Offline Regularised Reinforcement Learning for Large Language Models Alignment",
    "2405.19107",
    "code",
    "the papers were not read, two frameworks were; the advantage is not the method's soft one; beta is an example's",
    code=VERL,
)
def dro(
    *, beta: Annotated[NotNegative, "coefficient of half the squared log-ratio to the old policy"] = 0.05
) -> Objective:
    """Log-likelihood weighted by the advantage, with a squared penalty on leaving the old policy.

        J = 1/Σ|o_i| Σ_i Σ_t [ A_i lp_it − beta/2 (lp_it − lp_old,it)² ]

    Its gradient is (A_i − beta log r_it) ∇lp_it: the push on a token ends where its log-ratio is A/beta.
    Defaults: beta 0.05, the example of Tinker's documentation; verl has none and asks for it. The token mean is verl's.
    Departures: the advantage is GRPO's; the method's is soft, which Tinker leaves to its user and verl to its
    estimators. Tinker compares with the sampler's log-probabilities and sums over tokens; it names Kimi k1.5
    (2501.12599) next to the paper. verl's correction for the sampler weighs the square too; here it weighs the first
    term alone.
    Reductions: beta = 0 is REINFORCE with GRPO's advantage. On the first update the square is idle.
    """
    surrogate, penalties = (Regularised(), (ToOld(beta),)) if beta else (LogLikelihood(), ())
    return Objective(GroupAdvantage(), surrogate, TokenMean(), penalties=penalties)


# Bounds of the weight of a wrong token whose ratio is beyond the safety.
_SAFE = 0.8, 1.0

Decay = Annotated[AboveZero, "tokens after which a later token counts half"]
Least = Annotated[NotNegative, "smallest weight"]
Most = Annotated[NotNegative, "largest weight"]
Safety = Annotated[AboveZero, "ratio of a wrong token above which its weight is at most 1"]


class FutureWeight(BatchWeight):
    """exp of the discounted sum of the log-ratios from a token on, bounded; ratios above `dual` count in no sum."""

    of_response = True
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
    "FIPO",
    "2603.19835",
    "code",
    "a framework's code was read, whose defaults these are, not the paper",
    code="modelscope/ms-swift@3602360:swift/rlhf_trainers/grpo_trainer.py",
)
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
    """Weighs a token more where the update has made the tokens after it likelier.

        d_it = log r_it, 0 where r_it > dual;   F_it = Σ_{k ≥ t} γ^(k−t) d_ik,   γ = 2^(−1/decay)
        f_it = clip(exp F_it, least, most);   where A_i < 0 and r_it > safety: clip(f_it, 0.8, 1)
        J = 1/Σ|o_i| Σ_i Σ_t sg[f_it] · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i),   dual clip where A_i < 0

    With `least` below 1 a token counts less where the tokens after it have become less likely. k − t counts positions,
    tool tokens included, where d is 0; the first `decay` positions have half of the total weight.
    Defaults: decay 32, weights in [1, 1.2], safety 4, no dual clip, clip 0.2/0.2: ms-swift's general settings, as it
    sets none of them for the method. Its example has dual 10, high 0.28, weights in [0.8, 1.2], safety 3.
    Departures: the authors' code, read in a fork, has decay 128 and dual 3. It drops responses with more than one token
    beyond the dual clip.
    Reductions: least = most = 1 is DAPO with these bounds. At lp = lp_old all weights are 1.
    """
    weight = FutureWeight(decay, least, most, safety, dual)
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high), dual=dual), TokenMean(), weights=(weight,))


class UnboundedPositive(SurrogateStage):
    """π/sg[π] · A where A > 0, whose gradient is A ∇lp; `inner` elsewhere."""

    own_slope = True
    inner: SurrogateStage

    def __call__(self, batch: Batch) -> Trust:
        trust, lp, advantage = self.inner(batch), batch.policy.logprob, batch.credit.advantage
        rises = advantage > 0
        value = torch.where(rises, (lp - lp.detach()).exp() * advantage, trust.value)
        return Trust(value, trust.ratio, trust.lower, trust.upper, trust.clipped & ~rises)


@Paper(
    "UP: Unbounded Positive Asymmetric Optimization for Breaking the Exploration-Stability Dilemma",
    "2607.06987",
    "code",
    "a proposed trainer of a framework was read, not the paper",
    code="huggingface/trl@d841558:trl/experimental/up/up_trainer.py",
)
def up(*, low: Low = 0.2, dual: Dual = None) -> Objective:
    """The plain policy gradient where the advantage is positive, the clipped ratio elsewhere.

        J_it = A_i π/sg[π] where A_i > 0,   max(min(r_it A_i, clip(r_it, 1−low, ∞) A_i), dual · A_i) elsewhere
        J = 1/Σ|o_i| Σ_i Σ_t J_it

    Defaults: low 0.2, no dual clip (code).
    Reductions: at lp = lp_old it is DAPO.
    """
    return Objective(GroupAdvantage(), UnboundedPositive(Clip(FixedBounds(low, math.inf), dual=dual)), TokenMean())
