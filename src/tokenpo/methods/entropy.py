"""Credit, clips and bonuses that follow the entropy of a token, a response or a batch."""

import math
from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.ops.group import Groups
from ..core.parts.credit import GroupAdvantage
from ..core.parts.entropy import CurrentEntropyQuantile, HighInBatch, HighInResponse, OldEntropyQuantile, entropy_of
from ..core.parts.loss import Anchor, EntropyBonus, ReferenceKl, SequenceMean, TokenMean
from ..core.parts.part import BatchSignal, CreditStage, Look, MemorySignal, Selection, Signal
from ..core.parts.surrogate import Clip, FixedBounds, SelectedBounds, Unclipped
from ..core.parts.weights import BatchWeight, Drop, Keep, NormalisedWeight, SignalWeight
from ..core.ranges import AboveZero, Fraction, Limit, NotNegative, Share, between
from ..core.types import Batch, Rollouts
from .cov import covariance
from .options import Beta, Bound, Dual, DualOfScripts, High, Low, OfPolicy, OfResponse, Start, Step
from .paper import Paper


@Paper(
    "Stabilizing Knowledge, Promoting Reasoning: Dual-Token Constraints for RLVR",
    "2507.15778",
    "code",
    code="wizard-III/ArcherCodeR@8a1785b:verl/trainer/ppo/core_algos.py; "
    "wizard-III/ArcherCodeR@8a1785b:verl/workers/actor/dp_actor.py",
)
def archer(
    *,
    low_clip: Annotated[Share, "clip, below and above, of tokens with low entropy"] = 0.2,
    high_clip: Annotated[Share, "clip of tokens with high entropy"] = 0.5,
    kl: Annotated[
        NotNegative, "coefficient of the k3 divergence from the reference on tokens with low entropy; 0 needs none"
    ] = 1e-3,
    quantile: OfResponse = 0.8,
    dual: Dual = None,
    entropy: OfPolicy = "old",
) -> Objective:
    """Tokens with high entropy get a wide clip and no KL; tokens with low entropy get a narrow clip and a KL.

        high_it = 1[H_it > the quantile of its response's entropies]
        eps_it = high_clip where high, low_clip elsewhere;   k_it = 0 where high, kl elsewhere
        J = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_i, clip(r_it, 1−eps_it, 1+eps_it) A_i) − k_it · k3(π_ref/π) ]

    Defaults: as in the code. The dual clip is off; their scripts put it at 10.
    Departures: entropies are the old policy's; entropy="current" takes the current one's, as the authors' code does.
    The KL is averaged over all tokens, theirs over tokens of low entropy, which is about 1/quantile larger.
    Reductions: kl = 0 and equal clips is DAPO with that clip and the same dual.
    """
    high = HighInResponse(quantile, entropy == "current")
    bounds = SelectedBounds(high, FixedBounds(high_clip, high_clip), FixedBounds(low_clip, low_clip))
    return Objective(
        GroupAdvantage(),
        Clip(bounds, dual=dual),
        TokenMean(),
        penalties=(ReferenceKl(kl, scale=Drop(high)),) if kl else (),
    )


class ForkingShare(Signal):
    """n / k at the k tokens of the rollout batch's n whose entropies are highest, 0 elsewhere [N, T]."""

    reads = {"old_entropy"}
    quantile: Share

    def __call__(self, rollouts: Rollouts) -> Tensor:
        entropy = rollouts.need("old_entropy")
        kept = (entropy >= OldEntropyQuantile(self.quantile, counted=True)(rollouts)).to(entropy.dtype)
        return kept / masked.mean(kept, rollouts.mask)


@Paper(
    "Beyond the 80/20 Rule: High-Entropy Minority Tokens Drive Effective Reinforcement Learning for LLM Reasoning",
    "2506.01939",
    "code",
    code="Shenzhi-Wang/Beyond-the-80-20-Rule-RLVR@6f5dda6:verl/trainer/ppo/core_algos.py",
)
def forking_tokens(
    *,
    fraction: Annotated[Fraction, "share of the tokens that is kept"] = 0.2,
    low: Low = 0.2,
    high: High = 0.28,
    dual: DualOfScripts = None,
    beta: Beta = 0.0,
    entropy: OfPolicy = "old",
    denominator: Annotated[Literal["all", "kept"], "tokens that divide the policy's term"] = "all",
) -> Objective:
    """Only the tokens with the highest entropies of the batch get a gradient.

        keep_it = 1[H_it ≥ the ⌈fraction · n⌉-th largest H of the n tokens of the batch]
        J = 1/Σ|o_i| Σ_i Σ_t [ keep_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) − beta · k3(π_ref/π) ]   (eq. 6)

    Defaults: clip as in DAPO. The KL is on every token.
    Departures: the authors' code divides the policy's term by the kept tokens, and its scripts have a dual clip of 10:
    denominator="kept", dual=10. The default denominator is eq. 6's and TRL's. Entropies are the old policy's over the
    rollout batch; entropy="current" takes the current policy's over the optimiser step.
    Reductions: fraction = 1 is DAPO with dual=None.
    """
    kind = {"old": OldEntropyQuantile, "current": CurrentEntropyQuantile}[entropy]
    weight: BatchWeight = Keep(HighInBatch(kind(1 - fraction, counted=True)))
    if denominator == "kept":
        old = SignalWeight(ForkingShare(1 - fraction))
        weight = old if kind is OldEntropyQuantile else NormalisedWeight.of(weight)
    return Objective(
        GroupAdvantage(),
        Clip(FixedBounds(low, high), dual=dual),
        TokenMean(),
        weights=(weight,),
        penalties=(ReferenceKl(beta),) if beta else (),
    )


FLOOR = 1e-8


class EntropyDriven(CreditStage):
    """GRPO's advantage times the batch's mean entropy over the response's own."""

    across_groups = True
    reads = {"old_entropy"}
    group: GroupAdvantage = GroupAdvantage()

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        everyone = Groups.of(rollouts.group, rollouts.mask.any(1)).one()
        own = masked.mean(rollouts.need("old_entropy").double(), rollouts.mask, dim=1).clamp(min=FLOOR)
        typical = everyone.mean_std(own[:, 0])[0][:, None]
        return self.group(rollouts, bonus) * typical / own


@Paper(
    "EDGE-GRPO: Entropy-Driven GRPO with Guided Error Correction for Advantage Diversity",
    "2507.21848",
    "code",
    code="ZhangXJ199/EDGE-GRPO@cbe13ca:trl_edge/trainer/grpo_aha_trainer.py",
)
def edge_grpo(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    eps: Annotated[NotNegative, "added to the deviation of a group's rewards"] = 1e-6,
) -> Objective:
    """Divides the advantage by the response's mean entropy.

        H̄_i = mean_t H_it
        A_i = (R_i − mean_g R) / (std_g R + eps) · mean_j H̄_j / H̄_i,   j over the responses of the batch
        J = 1/N Σ_i 1/|o_i| Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    This is the entropy-driven advantage; the paper's guided error correction rewrites responses and belongs to
    sampling.
    Defaults: as in GRPO.
    Departures: the authors' code adds 1e-4 to the deviation: eps=1e-4. Its H̄ is the current policy's, with its
    gradient and over padding too; here it is the old policy's. Its script takes the token mean of a device's batch of
    one response, which is the mean of response means.
    Reductions: with equal mean entropies it is GRPO.
    """
    return Objective(EntropyDriven(GroupAdvantage(eps=eps)), Clip(FixedBounds(low, high)), SequenceMean())


Attenuation = Annotated[Share, "largest weight of the other tokens"]


class Attenuated(BatchWeight):
    """1 where tokens are selected, `attenuation` elsewhere, or with `chord` attenuation · 4 p (1 − p)."""

    selection: Selection
    attenuation: Attenuation
    chord: bool

    def of_batch(self, batch: Batch) -> Tensor:
        logprob = batch.policy.logprob.detach().clamp(max=0)
        # 1 − p by expm1: near p = 1 the difference of two rounded numbers is noise.
        curve = -4 * logprob.exp() * logprob.expm1() if self.chord else torch.ones_like(logprob)
        return torch.where(self.selection(batch), 1.0, self.attenuation * curve)


@Paper(
    "Entropy-Gated Selective Policy Optimization: Token-Level Gradient Allocation for Hybrid Training of Large "
    "Language Models",
    "2602.03309",
    "reconstructed",
    "only the abstract could be read: the attenuation, the threshold and the denominator are ours",
)
def egspo(
    *,
    quantile: Annotated[Share, "quantile of the rollout batch's old entropies; from it on the weight is 1"] = 0.8,
    attenuation: Attenuation = 0.5,
    curve: Annotated[
        Literal["constant", "chord"], "weight of the others: all the same, or by their probability"
    ] = "constant",
    low: Low = 0.2,
    high: High = 0.28,
) -> Objective:
    """Weighs tokens with high entropy by 1 and the others by less.

        w_it = 1 where H_old,it ≥ the quantile of H_old over the tokens of the rollout batch, damped_it elsewhere
        damped_it = attenuation;   curve="chord": attenuation · 4 p_it (1 − p_it),   p = exp(sg[lp])
        J = 1/Σ|o_i| Σ_i Σ_t w_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    From the abstract: tokens of high predictive entropy get full PPO updates, those of low entropy attenuated ones. All
    else is our reading; the supervised stage of the paper is not implemented.
    Defaults: all ours: the quantile 0.8 of the 80/20 rule, half the weight below it, DAPO's clip.
    Options: curve="chord" is the shape p (1 − p) that CHORD gives to expert tokens, scaled so that attenuation is its
    largest value, at p = 1/2.
    Reductions: attenuation = 0 is 80/20 forking tokens with fraction = 1 − quantile, up to a token at the threshold,
    which is a nearest-rank quantile here and a count there. With the constant curve attenuation = 1 is DAPO with
    dual=None.
    """
    damped = Attenuated(HighInBatch(OldEntropyQuantile(quantile)), attenuation, curve == "chord")
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), weights=(damped,))


class CovarianceTails(BatchSignal):
    """`strong` at the largest, `weak` at the smallest covariances among the tokens with the lowest entropy, else 0."""

    fraction: Fraction
    low_entropy: Fraction
    strong: NotNegative
    weak: NotNegative
    current: bool

    @property
    def reads(self) -> set[str]:
        return {entropy_of(current=self.current)}

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        entropy = batch.need(entropy_of(current=self.current))
        values = entropy[batch.mask]
        border = masked.smallest(values, max(1, int(self.low_entropy * values.numel())) - 1)
        low = batch.mask & (entropy <= border)
        advantage, logprob = (masked.keep(x, low) for x in (batch.credit.advantage, batch.policy.logprob))
        cov = covariance(advantage, logprob, low.sum())[low]
        count = max(1, int(self.fraction * cov.numel()))
        tails = torch.zeros_like(cov)
        tails[cov.topk(count).indices] = self.strong
        tails[cov.topk(count, largest=False).indices] = self.weak
        return tails.new_zeros(low.shape).masked_scatter(low, tails)


@Paper(
    "Efficient Reinforcement Learning with Semantic and Token Entropy for LLM Reasoning",
    "2512.04359",
    "code",
    "the curriculum by semantic entropy is not implemented",
    code="zldscr0/SENT@2a7c40f:verl/trainer/ppo/core_algos.py",
)
def sent(
    *,
    fraction: Annotated[Fraction, "share of the low-entropy tokens that is penalised at each end"] = 2e-4,
    low_entropy: Annotated[Fraction, "share of all tokens that counts as having low entropy"] = 0.8,
    strong: Annotated[NotNegative, "factor for the largest covariances"] = 2.0,
    weak: Annotated[NotNegative, "factor for the smallest covariances"] = 0.5,
    coef: Annotated[NotNegative, "coefficient of |lp − lp_old|"] = 1.0,
    beta: Beta = 0.0,
    entropy: OfPolicy = "current",
) -> Objective:
    """Penalises low-entropy tokens with extreme covariance for leaving the old policy.

        S = the max(1, int(low_entropy · n)) tokens of the step with the lowest entropy
        cov_t = (A_t − mean_S A)(lp_t − mean_S lp) for t in S,   k = max(1, int(fraction · |S|))
        g_t = strong at the k largest cov, weak at the k smallest, 0 elsewhere
        J = 1/Σ|o_i| Σ_i Σ_t [ r_it A_i − coef · g_it |lp − lp_old|_it − beta · k3(π_ref/π) ],   without a clip

    This is the token part; the paper's curriculum, prompts ordered by semantic entropy, belongs to the data.
    Defaults: as in the authors' code, but for beta: theirs is 0.001.
    Departures: the authors' abstract speaks of a KL on the tokens of S; their code, as here, penalises the 2 k extreme
    ones.
    Reductions: low_entropy = 1 and weak = 0 is KL-Cov with coef · strong.
    """
    held = Anchor(coef, CovarianceTails(fraction, low_entropy, strong, weak, entropy == "current"))
    penalties = (held, ReferenceKl(beta)) if beta else (held,)
    return Objective(GroupAdvantage(), Unclipped(), TokenMean(), penalties=penalties)


NatsTarget = Annotated[Limit, "mean entropy to stay at, nats; inf keeps the bonus on"]


class GatedCoefficient(MemorySignal):
    """α while the batch's mean entropy is below the target, else 0, at every token [N, T].

    `released`: the batch before gates this one, and −lp_old of the sampled tokens stands for their entropies.
    """

    target: NatsTarget
    delta: Step
    largest: Bound
    initial: Start
    released: bool = False

    @property
    def reads(self) -> set[str]:
        return set() if self.released else {"old_entropy"}

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(initial=between(0, self.largest).because("the largest coefficient"))

    def start(self) -> Mapping[str, float]:
        return {"coefficient": self.initial} | ({"open": 1.0} if self.released else {})

    def after(self, numbers: Mapping[str, float], rollouts: Rollouts) -> Mapping[str, float]:
        below = self._below(rollouts)
        change = self.delta if below else -self.delta
        coefficient = min(max(numbers["coefficient"] + change, 0.0), self.largest)
        return {"coefficient": coefficient} | ({"open": float(below)} if self.released else {})

    def __call__(self, rollouts: Rollouts, numbers: Mapping[str, float]) -> Tensor:
        is_open = numbers["open"] if self.released else self._below(rollouts)
        coefficient = numbers["coefficient"] if is_open else 0.0
        return rollouts.old_logprob.new_tensor(coefficient).expand(rollouts.mask.shape)

    def _below(self, rollouts: Rollouts) -> bool:
        entropy = -rollouts.old_logprob if self.released else rollouts.need("old_entropy")
        return bool(masked.mean(entropy, rollouts.mask) < self.target)


@Paper(
    "Skywork Open Reasoner 1 Technical Report",
    "2505.22312",
    "code",
    code="SkyworkAI/Skywork-OR1@64e96af:verl/trainer/ppo/core_algos.py; "
    "SkyworkAI/Skywork-OR1@64e96af:verl/trainer/ppo/ray_trainer.py; "
    "SkyworkAI/Skywork-OR1@64e96af:verl/workers/actor/dp_actor.py",
)
def skywork_entropy(
    *,
    target: NatsTarget = 0.2,
    delta: Step = 1e-4,
    largest: Bound = 0.005,
    start: Start = 0.0,
    low: Low = 0.2,
    high: High = 0.2,
    controller: Annotated[
        Literal["current", "released"], "gate by this batch's entropy, or, as released, by −mean lp_old of the last"
    ] = "current",
) -> Objective:
    """GRPO over tokens with an entropy bonus whose coefficient keeps the entropy near a target.

        c  = α · 1[H̄_old < target]         (H̄_old: mean entropy of the rollout batch's tokens)
        J  = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) + c · H_it ],   gradient through H_it
        α ← min(α + delta, largest) where H̄_old < target, else max(α − delta, 0), after each rollout batch

    Defaults: as in the authors' script; clip as in GRPO.
    Departures: a batch's own mean entropy gates it. The authors' code gates the next batch, and takes −mean lp_old of
    the sampled tokens for the entropy: controller="released" does both. TRL gates by the entropy of the step before,
    and its delta is 0.005. Under dynamic sampling the gate reads the kept groups; the change of α reads all that were
    drawn.
    Reductions: largest = 0 is GRPO over tokens.
    """
    coefficient = GatedCoefficient(target, delta, largest, start, controller == "released")
    penalties = (EntropyBonus(coefficient),)
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), penalties=penalties)


Target = Annotated[NotNegative, "target as a share of the first batch's mean entropy"]
Cutoff = Annotated[AboveZero, "accuracy from which a prompt gets no bonus; inf gives all prompts the same"]


class DifficultyCoefficient(MemorySignal):
    """Λ · d_g at every token of a group [N, T]; `proportional` steps by the distance to the target, not by its sign."""

    reads = {"old_entropy"}
    tau: Target
    rho: Cutoff
    delta: Step
    largest: Bound
    initial: Start
    proportional: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(initial=between(0, self.largest).because("the largest coefficient"))

    def start(self) -> Mapping[str, float]:
        return {"coefficient": self.initial}

    def after(self, numbers: Mapping[str, float], rollouts: Rollouts) -> Mapping[str, float]:
        entropy = float(masked.mean(rollouts.need("old_entropy"), rollouts.mask))
        target = numbers.get("target", self.tau * entropy)
        distance = target - entropy
        step = distance if self.proportional else math.copysign(1.0, distance) if distance else 0.0
        coefficient = min(max(numbers["coefficient"] + self.delta * step, 0.0), self.largest)
        return {"coefficient": coefficient, "target": target}

    def __call__(self, rollouts: Rollouts, numbers: Mapping[str, float]) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        accuracy = groups.mean_std(rollouts.reward)[0].clamp(0.0, 1.0)
        difficulty = (1 - accuracy / self.rho).clamp(min=0.0).to(rollouts.old_logprob.dtype)
        return (numbers["coefficient"] * difficulty)[:, None].expand(rollouts.mask.shape)


@Paper(
    "Rethinking Entropy Regularization in Large Reasoning Models",
    "2510.10959",
    "second-hand + reconstructed",
    "the difficulty function and the rule of the coefficient are ours",
)
def aer(
    *,
    tau: Target = 0.4,
    rho: Cutoff = 0.5,
    rule: Annotated[
        Literal["sign", "proportional"], "step by the sign of the distance, or in proportion to it"
    ] = "sign",
    delta: Step = 1e-4,
    largest: Bound = 0.005,
    start: Start = 0.0,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """GRPO over tokens with an entropy bonus for hard prompts, steered to a share of the initial entropy.

    Second-hand: hard prompts get a larger bonus, the target lies below the initial entropy, and one global coefficient
    follows the distance to the target. The forms of d and of the update are ours.

        d_g = max(0, 1 − acc_g / rho)         (acc_g: the group's mean reward, in [0, 1])
        J   = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_i, clip(r_it, 1−low, 1+high) A_i) + Λ · d_g · H_it ],  gradient through H_it
        Λ  ← clip(Λ + delta · sign(tau H̄_0 − H̄), 0, largest) after each rollout batch; H̄ is its mean entropy

    Defaults: tau is second-hand, the others are ours.
    Options: rule="proportional" moves Λ by delta · (tau H̄_0 − H̄).
    Reductions: largest = 0 is GRPO over tokens; rho = inf treats all prompts alike.
    """
    coefficient = DifficultyCoefficient(tau, rho, delta, largest, start, rule == "proportional")
    penalties = (EntropyBonus(coefficient),)
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), TokenMean(), penalties=penalties)
