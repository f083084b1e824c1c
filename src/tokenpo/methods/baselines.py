"""Credit of whole responses: the reward less a baseline, one class a paper."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import Tensor

from ..base.errors import TokenPOError
from ..core.objective import Objective
from ..core.ops import masked
from ..core.ops.group import Groups
from ..core.parts.aggregate import SequenceMean, TokenMean
from ..core.parts.credit import GroupAdvantage
from ..core.parts.part import CreditStage, Memory
from ..core.parts.surrogate import Clip, FixedBounds, LogLikelihood
from ..core.ranges import POSITIVE, Count, Finite, Fraction, NotNegative, Share
from ..core.types import Rollouts
from .options import Dual, High, Low
from .paper import VERL, Paper


@dataclass(frozen=True)
class LeaveOneOut(CreditStage):
    """R_i minus the mean reward of the other responses of its group."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        centred = GroupAdvantage(std=False).of(groups, (rollouts.reward + bonus).double())
        size = groups.size()
        return (centred * size / (size - 1).clamp(min=1))[:, None].expand(rollouts.mask.shape)


@Paper(
    "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs", "2402.14740",
    "code", code=VERL,
)  # fmt: skip
def rloo(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """The advantage is the reward minus the mean of the group's other rewards.

        A_i = R_i − mean_{j ≠ i in g} R_j = n/(n−1) · (R_i − mean_g R)
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    The baseline does not depend on the response it is subtracted from, so the gradient is unbiased.
    Defaults: low = high = 0.2 and the token mean are the usual loss of a framework that offers RLOO as an estimator.
    Departures: the paper's loss is the unclipped policy gradient of whole sequences. A group of one has advantage 0;
    the framework keeps its reward.
    Reductions: at lp = lp_old and equal group sizes the gradient is n/(n−1) times that of Dr. GRPO's advantage.
    """
    return Objective(LeaveOneOut(), Clip(FixedBounds(low, high)), TokenMean())


@dataclass(frozen=True)
class LengthWeighted(CreditStage):
    """The reward less the group's mean reward, in which a response counts as often as it has tokens."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = (rollouts.reward + bonus).double()
        baseline = groups.mean_std(reward, weight=rollouts.mask.sum(1))[0]
        advantage = torch.where(groups.varied(reward), reward - baseline, 0.0)
        return advantage[:, None].expand(rollouts.mask.shape)


@Paper("On-Policy RL with Optimal Reward Baseline", "2505.23585", "code", code=VERL)
def opo() -> Objective:
    """The plain policy gradient, its baseline weighted by the length of the responses.

        A_i = R_i − Σ_{j in g} |o_j| R_j / Σ_{j in g} |o_j|
        J = 1/Σ|o_i| Σ_i Σ_t A_i lp_it

    The baseline of least variance weighs by the gradient's squared norm, which is taken to grow with the response's
    length.
    Defaults: none to set: exact on-policy training has no clip.
    Departures: a group of one learns nothing; the code that was read takes its reward for its advantage. The token mean
    is a framework's. There is no importance ratio for further updates on a rollout batch.
    Reductions: with equal lengths the advantage is Dr. GRPO's.
    """
    return Objective(LengthWeighted(), LogLikelihood(), TokenMean())


@dataclass(frozen=True)
class RescaledAdvantage(CreditStage):
    """(R − mean_g) · B / (B − M), M counting the responses in groups of equal rewards."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = (rollouts.reward + bonus).double()
        teaching = groups.varied(reward).sum().clamp(min=1)
        advantage = GroupAdvantage(std=False).of(groups, reward) * groups.valid.sum() / teaching
        return advantage[:, None].expand(rollouts.mask.shape)


@Paper(
    "GPG: A Simple and Strong Reinforcement Learning Baseline for Model Reasoning", "2504.02546", "code",
    code="AMAP-ML/GPG@e096da8:open-r1/src/open_r1/gpg_trainer.py; "
    "AMAP-ML/GPG@e096da8:R1-V/src/r1-v/src/open_r1/trainer/grpo_trainer.py",
)  # fmt: skip
def gpg(
    *, sequence_mean: Annotated[bool, "the mean of response means, not the mean over all tokens"] = False
) -> Objective:
    """The plain policy gradient of group advantages, without ratio, clip or deviation.

        A_i = (R_i − mean_g R) · B / (B − M)
        J = 1/Σ|o_i| Σ_i Σ_t A_i lp_it

    B responses, M of them in groups whose rewards are all equal: their gradient is 0, and the others make up for it.
    Defaults: the token mean of the paper.
    Departures: the authors' trees for mathematics (open-r1, open-rs) take the token mean, those for vision (R1-V,
    Visual-RFT, VisualThinker-R1-Zero) the mean of response means: sequence_mean=True. There `adjust_gd` switches the
    factor on and a division by std_g + 1e-4 off. One framework takes the responses with a reward other than 0 for B −
    M. There is no importance ratio: after the first update on a rollout batch the gradient is that of an old sample.
    Reductions: at lp = lp_old and with mixed groups only, the gradient is that of Dr. GRPO's advantage with a token
    mean.
    """
    return Objective(RescaledAdvantage(), LogLikelihood(), SequenceMean() if sequence_mean else TokenMean())


@dataclass(frozen=True)
class OverBaseline(CreditStage):
    """R_i − b_i, of a `baseline` that is known without the response."""

    reads = {"baseline"}

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        advantage = (rollouts.reward + bonus).double() - rollouts.need("baseline").double()
        return advantage[:, None].expand(rollouts.mask.shape)


@Paper(
    "ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for Aligning Large Language Models",
    "2310.10505", "code", "a framework's estimator was read, not the authors' code", code=VERL,
)  # fmt: skip
def remax(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """The advantage is the reward minus that of a greedy response.

        A_i = R_i − b_i,   b_i = R(greedy response to the prompt of i)      (`baseline`)
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    The baseline is known without the response, so the gradient is unbiased, and a group of one learns.
    Defaults: low = high = 0.2 and the token mean are the usual loss of a framework that offers ReMax as an estimator.
    Departures: the paper's loss is the unclipped policy gradient of whole sequences, of one response to a prompt.
    Rewards of single tokens are not told apart: the reward to go is the whole one everywhere.
    Reductions: where b is the mean of the group's rewards it is Dr. GRPO's advantage.
    Note: the greedy response is sampled tokens: `continued_tokens` of a run counts them.
    """
    return Objective(OverBaseline(), Clip(FixedBounds(low, high)), TokenMean())


Decay = Annotated[Share, "what a response leaves of its role's baseline"]


@dataclass(frozen=True)
class OverRole(CreditStage, Memory):
    """R_i less the moving average of its role's rewards, which it remembers by the role's number."""

    reads = {"role"}
    decay: Decay

    def start(self) -> Mapping[str, float]:
        return {}

    def after(self, numbers: Mapping[str, float], rollouts: Rollouts) -> Mapping[str, float]:
        alive, moved = rollouts.mask.any(1), dict(numbers)
        for role in rollouts.need("role")[alive].unique().tolist():
            earned = rollouts.reward[alive & (rollouts.need("role") == role)].double()
            kept = self.decay ** len(earned)
            moved[str(role)] = kept * numbers.get(str(role), 0.0) + (1 - kept) * float(earned.mean())
        return moved

    def __call__(self, rollouts: Rollouts, bonus: Tensor, *numbers: Mapping[str, float]) -> Tensor:
        role, known = rollouts.need("role"), numbers[0] if numbers else {}
        baseline = torch.zeros_like(rollouts.reward, dtype=torch.float64)
        for name, value in known.items():
            baseline = torch.where(role == int(name), value, baseline)
        advantage = (rollouts.reward + bonus).double() - baseline
        return advantage[:, None].expand(rollouts.mask.shape)


@Paper(
    "SPIRAL: Self-Play on Zero-Sum Games Incentivizes Reasoning via Multi-Agent Multi-Turn Reinforcement Learning",
    "2506.24119", "code", "a framework's code was read, not the paper",
    code="PrimeIntellect-ai/prime-rl@1ada107:src/prime_rl/orchestrator/algo/rae.py",
)  # fmt: skip
def rae(*, decay: Decay = 0.95, low: Low = 0.2, high: High = 0.2) -> Objective:
    """The advantage is the reward minus what the response's role usually earns.

        A_i = R_i − b_k,   k the role of i, before this batch      (`role`)
        b_k ← d^n b_k + (1 − d^n) · mean of R over the n responses of role k in the batch,   b_k = 0 at first
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    In a zero-sum game the mean of a group is near 0 whatever the policy does, and one role may have the easier side.
    Defaults: decay d 0.95 (a framework's code); the clip, 0.2 on both sides, and the token mean are ours.
    Departures: the framework goes response by response, so that the order decides: each is compared with the baseline
    before its own reward moves it. Here a batch is compared with the baseline before it, which then moves as far as by
    n responses that all earned their mean.
    Reductions: with decay 1 the baseline stays 0, and the reward is the advantage.
    """
    return Objective(OverRole(decay), Clip(FixedBounds(low, high)), TokenMean())


@dataclass(frozen=True)
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
    "Optimizing Language Models for Inference Time Objectives using Reinforcement Learning", "2503.19595", "code",
    "whether to divide by the deviation, as the framework whose code was read does", code=VERL,
)  # fmt: skip
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
    Defaults: the division by the deviation and eps 1e-6 are a framework's; the derivation has no division: std=False.
    Clip 0.2/0.2, no dual clip and the token mean are the framework's usual loss.
    Departures: k is the size of the group. A group of one has advantage 0; the framework refuses it.
    Reductions: with two responses and std=False it is RLOO's positive half: the better one gets R_(1) − R_(2), the
    other 0.
    """
    return Objective(BestMargin(std), Clip(FixedBounds(low, high)), TokenMean())


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Truncated(CreditStage):
    """1 for right answers; for wrong ones what the terms 2 to `order` of the series of log p take away."""

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
    "Maximum Likelihood Reinforcement Learning", "2602.02710", "code",
    "the aggregate; clip and the truncation of each baseline are second-hand",
    code="tajwarfahim/maxrl@c0698eb:verl/trainer/ppo/core_algos.py",
)  # fmt: skip
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
        order T     A_i = 1 where R_i > 0, else −Σ_{k=2}^{min(T, f)} C(f−1, k−1) / C(G−1, k−1),   f wrong ones of G
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i),   at least dual · A_i where A_i < 0

    Hard prompts count more: with K of G right a right answer gets G/K − 1, a wrong one −1.
    Defaults: the practical estimator and eps 1e-6 (the authors' code). Clip 0.2/0.2 and dual clip 3 are those of their
    runs as others report them. The token mean is ours, their framework's default.
    Options: "none" is an unbiased estimate of the series truncated at T = G, as is "kept", with less variance;
    "practical" truncates at T = G − 1 (all second-hand). `order` truncates at T, without a baseline; its advantages are
    G times the authors' weights, whose sum over the group stands for our mean.
    Departures: a group of one has advantage 0; the authors' code gives it R/eps. A negative reward is an error: the
    mean is a probability here. Leave-one-out, cross-fitted and subset estimators are not implemented.
    Reductions: with as many right as wrong answers the practical form is GRPO's with the population deviation. R − mean
    in place of (R − mean)/mean is Dr. GRPO's advantage. order = 1 is REINFORCE on right answers, without a baseline.
    """
    over_mean = {"practical": OverMean(), "kept": OverMean(hopeless=True), "none": OverMean(centred=False)}[baseline]
    if order is not None and baseline != "practical":
        raise TokenPOError(f"maxrl: order = {order} takes the place of the baseline: leave out baseline = {baseline!r}")
    credit = over_mean if order is None else Truncated(order)
    return Objective(credit, Clip(FixedBounds(low, high), dual=dual), TokenMean())


FLOOR = 1e-8


@dataclass(frozen=True)
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
    "EDGE-GRPO: Entropy-Driven GRPO with Guided Error Correction for Advantage Diversity", "2507.21848", "code",
    code="ZhangXJ199/EDGE-GRPO@cbe13ca:trl_edge/trainer/grpo_aha_trainer.py",
)  # fmt: skip
def edge_grpo(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    eps: Annotated[NotNegative, "added to the deviation of a group's rewards"] = 1e-6,
) -> Objective:
    """Advantages are divided by the response's mean entropy.

        H̄_i = mean_t H_it
        A_i = (R_i − mean_g R) / (std_g R + eps) · mean_j H̄_j / H̄_i,   j over the responses of the batch
        J = 1/N Σ_i 1/|o_i| Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    This is the entropy-driven advantage; the paper's guided error correction rewrites responses and belongs to
    sampling.
    Defaults: low = high = 0.2 and eps 1e-6, as in GRPO.
    Departures: their script takes the token mean of a device's batch of one response, which is the mean of response
    means. The authors' code adds 1e-4 to the deviation: eps=1e-4. H̄ is the old policy's, over response tokens, without
    gradient; theirs is the current policy's, with its gradient and over padding too. H̄ below 1e-8 counts as 1e-8, and
    nothing else bounds the factor: a response that is all but certain has an advantage of up to mean_j H̄_j · 1e8 times
    GRPO's. At the policy that sampled, ∇lp of such tokens is as small as their entropy, so the gradient stays of GRPO's
    order; after further updates on one rollout batch it need not, and then only the limit on the gradient norm holds
    it.
    Reductions: with equal mean entropies it is GRPO.
    """
    return Objective(EntropyDriven(GroupAdvantage(eps=eps)), Clip(FixedBounds(low, high)), SequenceMean())


Shift = Annotated[Finite, "size of the shift; 0 switches it off"]
Least = Annotated[Fraction, "share of a response's tokens, the least probable, whose geometric mean is its confidence"]
OnlyRight = Annotated[bool, "shift only the responses whose reward exceeds the group's mean"]


@dataclass(frozen=True)
class ConfidenceShift(CreditStage):
    """The group's advantage plus alpha · (confidence in the prompt − confidence in the response)."""

    reads = {"prompt_logprob"}
    alpha: Shift
    fraction: Least
    only_correct: OnlyRight
    group: GroupAdvantage = GroupAdvantage()

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
        count = (self.fraction * rollouts.mask.sum(1, keepdim=True).double()).ceil().clamp(min=1)
        least = torch.arange(ranked.shape[1], device=ranked.device) < count
        return masked.mean(ranked, least, dim=1)[:, 0].exp()


@Paper(
    "Back to Basics: Revisiting Exploration in Reinforcement Learning for LLM Reasoning via Generative Probabilities",
    "2602.05281", "second-hand",
    "alpha, the tokens of the prompt that count, and the responses that are moved are open",
)  # fmt: skip
def arm(
    *, alpha: Shift = 0.1, fraction: Least = 0.2, only_correct: OnlyRight = False, low: Low = 0.2, high: High = 0.28
) -> Objective:
    """Advantages fall with the policy's confidence in the response and rise with its confidence in the prompt.

        c(o_i) = exp(mean lp_old of its ⌈fraction · |o_i|⌉ least probable tokens),   c(q) = exp(mean lp_old of q)
        A_i = (R_i − mean_g R) / (std_g R + 1e-6) + alpha · (c(q) − c(o_i))
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    A group whose rewards are all equal keeps advantage 0. Shifts of a group sum to alpha · (G c(q) − Σ_i c(o_i)), not
    to 0.
    Defaults: fraction 0.2, clip 0.2/0.28 (second-hand); alpha 0.1 (ours; the value was not found).
    Options: only_correct=True shifts only responses whose reward exceeds the group's mean, as the abstract says; the
    formula shifts all.
    Departures: confidences are the old policy's, at the temperature of sampling; c(q) leaves out the prompt's first
    token. At least one token of a response counts.
    Reductions: alpha = 0 is DAPO with dual=None.
    """
    shifted = ConfidenceShift(alpha, fraction, only_correct)
    return Objective(shifted if alpha else shifted.group, Clip(FixedBounds(low, high)), TokenMean())
