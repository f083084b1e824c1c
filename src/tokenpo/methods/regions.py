"""Trust regions of a token, most of them around the policy that sampled."""

import math
from typing import Annotated, Literal

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.ops.ratio import BOUND, log_ratio
from ..core.parts.correction import RolloutCorrection
from ..core.parts.credit import GroupAdvantage
from ..core.parts.loss import TokenMean
from ..core.parts.part import BatchSignal, Look, Penalty, Selection, Signal
from ..core.parts.surrogate import (
    Bounds,
    Clip,
    DetachedClip,
    FixedBounds,
    Ratio,
    Region,
    RolloutRatio,
    TokenRatio,
    Unclipped,
)
from ..core.parts.weights import Keep
from ..core.ranges import Limit, NotNegative, Share, limit
from ..core.types import Batch, Rollouts, Trust
from .options import High, Low
from .paper import VERL, Paper

DPPO = Paper(
    "Rethinking the Trust Region in LLM Reinforcement Learning",
    "2602.04879",
    "code",
    code=f"sail-sg/Stable-RL@c6af1d1:verl/trainer/ppo/core_algos.py; {VERL}",
    about="""
    Defaults: threshold 0.15 (tv) and 0.05 (kl), anchor the rollout policy, cap 20 (a framework's code; the paper warns
    of a small one). anchor="old" needs no log-probabilities of the sampler.
    Departures: verl's anchor is the old policy, and its cap 3 is the default of its clip_ratio_c. The authors' cap is
    10 where their configuration names none.
    Reductions: an unbounded threshold and cap, with anchor="old", has the gradient of KL-Cov with coef = 0: r A,
    unclipped.
    """,
)
TINY = 1e-8
Cap = Annotated[float, limit(1)]
Anchor = Annotated[Literal["rollout", "old"], "the policy that the current one is compared with"]


class BinaryDivergence(Region):
    """Tokens whose probability is near the anchor's, by total variation or binary `kl` (nats), or moves back to it."""

    threshold: Limit
    anchor: TokenRatio | RolloutRatio
    kl: bool

    def __call__(self, batch: Batch) -> Tensor:
        logprob = batch.policy.logprob.detach()
        x = self.anchor(batch).detach().log()
        now, anchored = logprob.exp(), (logprob - x).exp()
        # 1 − p by expm1: near p = 1 the difference of two rounded numbers is noise.
        other = torch.log((TINY - (logprob - x).clamp(max=0).expm1()) / (TINY - logprob.clamp(max=0).expm1()))
        divergence = (1 - anchored) * other - anchored * x if self.kl else (now - anchored).abs()
        returning = torch.where(batch.credit.advantage > 0, now <= anchored, now >= anchored)
        return (divergence <= self.threshold) | returning


def _dppo(threshold: float, cap: float, anchor: str, kl: bool) -> Objective:
    ratio = {"rollout": RolloutRatio(), "old": TokenRatio()}[anchor]
    surrogate = DetachedClip(FixedBounds(1.0, cap - 1), ratio, BinaryDivergence(threshold, ratio, kl))
    return Objective(GroupAdvantage(), surrogate, TokenMean())


@DPPO
def dppo_tv(
    *,
    threshold: Annotated[Limit, "largest change of a token's probability"] = 0.15,
    cap: Annotated[Cap, "largest importance weight"] = 20.0,
    anchor: Anchor = "rollout",
) -> Objective:
    """Drops tokens whose probability moved too far from the sampler's.

        d = |p − p_a|,   the probability of the sampled token now and under the anchor: the policy that sampled it
        keep_it = d ≤ threshold, or A_i > 0 and p ≤ p_a, or A_i < 0 and p ≥ p_a
        J = 1/Σ|o_i| Σ_i Σ_t keep_it · sg[min(p/p_a, cap)] · A_i · lp_it

    A ratio says little about a rare token: from probability 0.001 to 0.002 it is 2. The divergence of the events "this
    token" and "any other" bounds that of the whole distribution from below.
    """
    return _dppo(threshold, cap, anchor, kl=False)


@DPPO
def dppo_kl(
    *,
    threshold: Annotated[Limit, "largest divergence of a token, nats"] = 0.05,
    cap: Annotated[Cap, "largest importance weight"] = 20.0,
    anchor: Anchor = "rollout",
) -> Objective:
    """Drops tokens whose probability moved too far from the sampler's, by the binary KL divergence.

        d = p_a log(p_a / p) + (1 − p_a) log((1 − p_a) / (1 − p)),   p and p_a, keep_it and J as in dppo_tv

    The same change of a probability counts more at a rare token.
    """
    return _dppo(threshold, cap, anchor, kl=True)


M2PO = Paper(
    "Prosperity before Collapse: How Far Can Off-Policy RL Reach with Stale Data on LLMs?",
    "2510.01161",
    "code",
    "the paper's text was not read; the authors' code and AReaL's differ, and are two methods here",
    code="Infini-AI-Lab/M2PO@4514ce2:verl/trainer/ppo/core_algos.py; "
    "inclusionAI/AReaL@4aef98d:areal/trainer/ppo/actor.py",
    about="""
    Defaults: budget 0.04, low 0.3, high 0.5 (the authors' code); m2po_rollout: 0.04 (AReaL's example), clip 0.2/0.2.
    Departures: an unbounded ratio may reach e^20, in the authors' code 1e5. AReaL's dropped tokens leave the
    denominator, here they count; its weight ρ on the kept ones is a rollout correction.
    Reductions: an infinite budget clips nothing; budget 0 is DAPO with low and high, its dual clip off, and so is
    m2po_rollout with an infinite threshold.
    """,
)
# As in the authors' code: the bound lies just below the log-ratio of the token that defines it.
_BEYOND = 1e-12

Budget = Annotated[Limit, "largest mean squared log-ratio of the tokens that their advantage pushes further from 1"]


class Reach(BatchSignal):
    """τ [N, T] in nats, the largest log-ratio of a token that its advantage pushes further; 20 within the budget."""

    budget: Budget

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        x = Ratio.log(batch).detach()
        squares = x.double().square()[batch.mask & (x * batch.credit.advantage > 0)].sort().values
        n = len(squares)
        if not n or float(squares.mean()) <= self.budget:
            return torch.full_like(x, BOUND)
        held = squares.cumsum(0) + squares * torch.arange(n - 1, -1, -1, device=x.device)
        first = int((held < n * self.budget).sum())
        reach = (squares[first - 1] - _BEYOND).clamp(min=0).sqrt() if first else squares.new_zeros(())
        return reach.to(x.dtype).expand_as(x)


class Budgeted(Bounds):
    """[min(e^−τ, 1 − low), max(e^τ, 1 + high)]."""

    reach: Reach
    low: Share
    high: NotNegative

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        reach = batch.signal(self.reach)
        return (-reach).exp().clamp(max=1 - self.low), reach.exp().clamp(min=1 + self.high)


class Nearest(Signal):
    """1 at the tokens whose (lp_roll − lp_old)² are smallest, as many as keep its mean below `most`, or one."""

    reads = {"rollout_logprob"}
    idle_as_sampled = True
    most: Limit

    def __call__(self, rollouts: Rollouts) -> Tensor:
        squares = (rollouts.need("rollout_logprob") - rollouts.old_logprob).double().square()
        ranked, order = squares[rollouts.mask].sort()
        mean = ranked.cumsum(0) / torch.arange(1, len(ranked) + 1, device=ranked.device)
        near = mean < self.most
        near[:1] = True
        kept = torch.zeros_like(ranked).scatter_(0, order, near.double())
        return torch.zeros_like(squares).masked_scatter(rollouts.mask, kept).to(rollouts.old_logprob.dtype)


@M2PO
def m2po(
    *,
    budget: Budget = 0.04,
    low: Annotated[Share, "the bound below is at most 1 − low"] = 0.3,
    high: Annotated[NotNegative, "the bound above is at least 1 + high"] = 0.5,
) -> Objective:
    """Clips only when the second moment of the step's log-ratios exceeds a budget, and then only the tail.

        harmful tokens: A_i > 0 and r_it > 1, or A_i < 0 and r_it < 1;   their v = (log r_it)², ascending, n of them
        τ = ∞ where mean v ≤ budget;   else τ² = v_{k−1}, k the first with (v_1 + ... + v_k + (n − k) v_k) / n ≥ budget
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, min(e^−τ, 1 − low), max(e^τ, 1 + high)) A_i)

    A fixed clip cuts many tokens of stale rollouts. This one cuts none of them inside [1 − low, 1 + high].
    """
    return Objective(GroupAdvantage(), Clip(Budgeted(Reach(budget), low, high)), TokenMean())


@M2PO
def m2po_rollout(
    *,
    threshold: Annotated[Limit, "bound of the mean squared log-ratio of the tokens that stay"] = 0.04,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Drops the tokens on which the sampler and the old policy differ most.

        keep = the tokens of smallest d = (lp_roll − lp_old)², as many as have a mean d below the threshold, or one
        J = 1/Σ|o_i| Σ_i Σ_t keep_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    Dropped tokens count in the denominator.
    """
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), weights=(Keep(Nearest(threshold)),))


class Aligned(Selection):
    """Tokens of responses with mean_t |ρ_it − 1| ≤ delta, and those that their advantage moves toward the sampler."""

    reads = {"rollout_logprob"}
    idle_as_sampled = True
    of_response = True
    delta: Limit

    def __call__(self, batch: Batch) -> Tensor:
        x = log_ratio(batch.rollouts.old_logprob, batch.need("rollout_logprob"))
        near = masked.mean(x.expm1().abs(), batch.mask, dim=1) <= self.delta
        return near | (x * batch.credit.advantage <= 0)


@Paper(
    "Align and Filter: Improving Performance in Asynchronous On-Policy RL",
    "2603.01365",
    "code",
    "only abstract and introduction were read; the form for language models is one author's, in a framework",
    code="allenai/open-instruct@61afa04:open_instruct/grpo_utils.py",
)
def vaco(
    *,
    delta: Annotated[Limit, "bound of a response's mean |ρ − 1|; inf drops nothing"] = 2.0,
    cap: Annotated[Cap, "largest weight ρ"] = 2.0,
    low: Low = 0.2,
    high: High = 0.272,
) -> Objective:
    """Drops tokens that move further from the sampler, in responses where the old policy is too far from it already.

        ρ_it = exp(lp_old,it − lp_roll,it),   D_i = mean_t |ρ_it − 1|
        keep_it = D_i ≤ delta, or A_i log ρ_it ≤ 0
        J = 1/Σ|o_i| Σ_i Σ_t keep_it · min(ρ_it, cap) · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    Half of the expected |ρ − 1| is the total variation between the two policies. A dropped token counts in the
    denominator.
    Defaults: cap 2, clip 0.2/0.272 (the framework's); delta 2, its example, as its own default is off.
    Departures: advantages are not aligned to the latest values, as there is no critic.
    Reductions: delta = inf is DAPO with that clip and the correction "tis"; with lp_roll = lp_old it is DAPO.
    """
    weights = (Keep(Aligned(delta)), RolloutCorrection(cap=cap))
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), weights=weights)


class Between(Region):
    """Tokens whose ratio to the sampler lies strictly inside (1 − low, 1 + high)."""

    low: Share
    high: Limit

    def __call__(self, batch: Batch) -> Tensor:
        ratio = RolloutRatio()(batch).detach()
        return (ratio > 1 - self.low) & (ratio < 1 + self.high)


@Paper(
    "GLM-5 (SkyRL's rollout_is)",
    "2602.15763",
    "code",
    "a framework's loss was read, not the paper's equation",
    code="NovaSky-AI/SkyRL@a956457:skyrl/backends/skyrl_train/utils/ppo_utils.py",
)
def rollout_is(
    *,
    low: Annotated[Share, "bound below, ratio > 1 − low"] = 0.2,
    high: Annotated[Limit, "bound above, ratio < 1 + high"] = 0.2,
) -> Objective:
    """Weighs tokens by the ratio to the sampler's probability and drops those whose ratio lies outside the bounds.

        q_it = exp(lp_it − lp_roll,it)
        J = 1/Σ|o_i| Σ_i Σ_t sg[q_it · 1(1 − low < q_it < 1 + high)] · A_i · lp_it

    One ratio corrects both for the engine that sampled and for the updates since. A token outside the bounds has no
    gradient, whatever the sign of its advantage; CISPO keeps a bounded one there.
    Defaults: 0.2 and 0.2, the clip of SkyRL's PPO.
    Departures: the advantage is GRPO's; SkyRL sets the advantage apart from the loss.
    Reductions: unbounded, it has the gradient of q A: DPPO without its region and cap.
    """
    surrogate = DetachedClip(FixedBounds(1.0, math.inf), RolloutRatio(), Between(low, high))
    return Objective(GroupAdvantage(), surrogate, TokenMean())


Fall = Annotated[NotNegative, "largest fall of a probability that is pushed down"]
Rise = Annotated[NotNegative, "largest rise of a probability that is pushed up"]


class NearSampler(Selection):
    """Tokens whose probability has not moved too far from the sampler's along their advantage, or in `both` ways."""

    reads = {"rollout_logprob"}
    low: Fall
    high: Rise
    both: bool = False

    def __call__(self, batch: Batch) -> Tensor:
        moved = batch.policy.logprob.detach().exp() - batch.need("rollout_logprob").exp()
        if self.both:
            return (moved <= self.high) & (moved >= -self.low)
        return torch.where(batch.credit.advantage > 0, moved <= self.high, moved >= -self.low)


class SquaredLogRatio(Penalty):
    """coef · (lp − lp_roll)²."""

    reads = {"rollout_logprob"}
    coef: NotNegative

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return self.coef * log_ratio(batch.policy.logprob, batch.need("rollout_logprob")).square()


@Paper(
    "Rethinking the Trust Region in LLM Reinforcement Learning (prime-rl's default loss)",
    "2602.04879",
    "code",
    "a framework's loss: DPPO's mask and another paper's penalty, read in its code",
    code="PrimeIntellect-ai/prime-rl@559b447:src/prime_rl/trainer/rl/loss.py",
)
def prime_rl(
    *,
    low: Fall = 0.2,
    high: Rise = 0.2,
    kl: Annotated[NotNegative, "coefficient of the squared log-ratio to the sampler"] = 1e-3,
    both: Annotated[bool, "drop tokens that moved too far either way, whatever their advantage"] = False,
) -> Objective:
    """Uses the ratio to the sampler and drops tokens whose probability has moved too far.

        q_it = exp(lp_it − lp_roll,it),   d_it = exp(lp_it) − exp(lp_roll,it)
        keep_it = d_it ≤ high where A_i > 0, d_it ≥ −low elsewhere;   −low ≤ d_it ≤ high with both=True
        J = 1/Σ|o_i| Σ_i Σ_t [ keep_it · q_it A_i − kl (log q_it)² ],   A_i = R_i − mean_g R

    There is no old policy: rollouts may be several updates old, and the ratio is to the policy that sampled. The
    penalty applies to dropped tokens too.
    Defaults: low and high 0.2, kl 1e-3 (its settings; its documentation shows a capped ratio, its code has none).
    Options: both=True with low=0.1, high=0.1 is its loss "ipo".
    Departures: its trainer leaves groups without an advantage out of the batch; here they stay, with their penalty.
    Reductions: kl = 0 has the gradient of dppo_tv with that threshold, without its cap, on the advantage of dr_grpo. At
    lp = lp_roll the penalty is idle.
    """
    weights, penalties = (Keep(NearSampler(low, high, both)),), (SquaredLogRatio(kl),) if kl else ()
    return Objective(
        GroupAdvantage(std=False), Unclipped(RolloutRatio()), TokenMean(), weights=weights, penalties=penalties
    )
