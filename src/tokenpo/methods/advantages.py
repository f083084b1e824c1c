"""Plain rewards, and advantages over the mean of a group or a batch."""

from typing import Annotated, Literal

import torch
from torch import Tensor

from ..core.facts import Fact
from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.ops.masked import whiten
from ..core.parts.correction import BinaryKl, Criterion, Mean, Rejection
from ..core.parts.credit import GroupAdvantage, RelativeAdvantage, ShrunkAdvantage
from ..core.parts.loss import K2, ReferenceKl, SequenceMean, TokenMean
from ..core.parts.part import CreditStage, Sampler, Supplied
from ..core.parts.surrogate import Clip, DetachedClip, FixedBounds, LogLikelihood, RolloutRatio, Unclipped
from ..core.ranges import Limit, NotNegative
from ..core.types import Rollouts
from .options import Ceiling, Dual, Floor, High, Low
from .paper import TRL, VERL, Paper


@Paper(
    "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs",
    "2402.14740",
    "code",
    code=VERL,
)
def rloo(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """The advantage is the reward minus the mean of the group's other rewards.

        A_i = R_i − mean_{j ≠ i in g} R_j = n/(n−1) · (R_i − mean_g R)
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    The baseline does not depend on the response it is subtracted from, so the gradient is unbiased.
    Defaults: clip 0.2/0.2 and the token mean are the usual loss of a framework with this estimator.
    Departures: the paper's loss is the unclipped policy gradient of whole sequences.
    Reductions: at lp = lp_old and equal group sizes the gradient is n/(n−1) times the one with Dr. GRPO's advantage.
    """
    return Objective(RelativeAdvantage(std="none", leave_one_out=True), Clip(FixedBounds(low, high)), TokenMean())


@Paper(
    "Part I: Tricks or Traps? A Deep Dive into RL for LLM Reasoning",
    "2508.08221",
    "code",
    "the paper was not read: the authors' framework and others were",
    code=f"alibaba/ROLL@8eb27cc:roll/utils/functionals.py; {TRL}; "
    "modelscope/ms-swift@3602360:swift/rl_core/advantage.py; areal-project/AReaL@cbff54d:areal/utils/data.py",
)
def lite_ppo(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    dual: Dual = None,
    of: Annotated[
        Literal["rewards", "advantages"], "the deviation of the rewards, or of the rewards less their group's mean"
    ] = "rewards",
    eps: Annotated[NotNegative, "added to the deviation"] = 1e-6,
) -> Objective:
    """Compares within the group and scales by the deviation of the whole batch.

        A_i = (R_i − mean_g R) / (std R + eps),   std over all responses of the batch, ddof 1
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    Defaults: clip 0.2/0.2, the token mean, eps 1e-6 and no dual clip. TRL and ms-swift add eps 1e-4.
    Options: of="advantages" is AReaL's scale (its eps is 1e-5), which leaves out that the means of groups differ.
    Departures: ROLL's example adds a dual clip, whitening and a divergence.
    Reductions: with one group in the batch it is DAPO's loss with that clip, for both scales.
    """
    credit = RelativeAdvantage(std="batch", centred=of == "advantages", eps=eps)
    return Objective(credit, Clip(FixedBounds(low, high), dual=dual), TokenMean())


@Paper(
    "PRPO, Population-Relative Policy Optimization (a post of rLLM)",
    "rllm-project.com/post.html?post=continual_learning.md",
    "code",
    "the framework's estimator was read, not its post; surrogate and denominator are ours",
    code="rllm-org/rllm@9beb6e0:rllm/trainer/algorithms/advantage.py",
)
def prpo(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """Compares each response with the mean reward of the whole batch, over all prompts.

        A_i = (R_i − mean R) / (std R + 1e-6),   both over all responses of the batch, ddof 0
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    Defaults: clip 0.2/0.2 and the token mean (ours).
    Reductions: with one group in the batch it is DAPO's loss with that clip, times √(n/(n−1)).
    """
    credit = RelativeAdvantage("batch", "batch", population=True)
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean())


@Paper(
    "FlashREINFORCE: Critic-Free Single-Rollout Asynchronous RL for Agentic Language Models",
    "github.com/yifanzhang-pro/FlashREINFORCE",
    "code",
    code="yifanzhang-pro/FlashREINFORCE@d7604df:flashreinforce/loss.py",
)
def flash_reinforce(
    *, delta: Annotated[Limit, "largest mean binary KL of a response from the sampler, nats; inf keeps all"] = 3e-3
) -> Objective:
    """REINFORCE over the batch's mean reward, for one response a prompt from an older policy.

        q_it = exp(lp_it − lp_roll,it),   d_it = KL of "this token or another", from the sampler to the policy
        keep_i = mean_t d_it ≤ delta
        J = 1/N Σ_i keep_i 1/|o_i| Σ_t q_it (R_i − mean R),   mean R over all responses of the batch

    No group, no old policy, no clip and no deviation: a response that the policy has left is dropped whole.
    Defaults: delta 3e-3 (code). Probabilities are within [1e-6, 1 − 1e-6] in d.
    Departures: the optional choice of a failed response's tokens by entropy is left out. The authors take one update a
    batch.
    Reductions: at lp = lp_roll it is the gradient of REINFORCE with the batch's mean as baseline.
    """
    near = Rejection((Criterion(Mean(), high=delta, of=BinaryKl()),), current=True)
    credit = RelativeAdvantage("batch", "none")
    return Objective(credit, Unclipped(RolloutRatio()), SequenceMean(), weights=(near,))


REINFORCE_PP = Paper(
    "REINFORCE++: Stabilizing Critic-Free Policy Optimization with Global Advantage Normalization",
    "2501.03262",
    "code",
    "the k2 estimator of the baseline variant is second-hand",
    code=f"{VERL}; OpenRLHF/OpenRLHF@3c3be62:openrlhf/trainer/ppo_utils/experience_maker.py",
    about="""
    Defaults: clip 0.2/0.2, discount 1 (code), beta 0. That the baseline variant takes k2 is second-hand.
    Departures: the whitening is verl's; OpenRLHF, the authors' framework, divides by the population's variance. Where
    the batch's mean is not 0, whitening gives a group of equal rewards an advantage.
    Reductions: none to GRPO: the group's deviation is not divided by.
    """,
)


class WhitenedReturn(CreditStage):
    """The reward less beta times the KL still to come at each token, whitened over the tokens of the batch."""

    across_groups = True
    beta: NotNegative = 0.0

    @property
    def reads(self) -> set[str]:
        return {"ref_logprob"} if self.beta else set()

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        reward = (rollouts.reward + bonus).double()[:, None].expand(rollouts.mask.shape)
        if self.beta:
            kl = (rollouts.old_logprob - rollouts.need("ref_logprob")).double()
            reward = reward - self.beta * kl.flip(1).cumsum(1).flip(1)
        return whiten(reward, rollouts.mask)


class WhitenedBaseline(CreditStage):
    """The reward less its group's mean, whitened over the tokens of the batch."""

    across_groups = True

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        centred = GroupAdvantage(std=False).of(groups, (rollouts.reward + bonus).double())
        return whiten(centred[:, None].expand(rollouts.mask.shape), rollouts.mask)


@REINFORCE_PP
def reinforce_pp(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    beta: Annotated[NotNegative, "coefficient of the divergence from the reference in the reward; 0 needs none"] = 0.0,
) -> Objective:
    """Normalises returns over all tokens of the batch, without groups.

        A_it = whiten(R_i − beta Σ_{s ≥ t} (lp_old − lp_ref)_is)
        whiten(x) = (x − mean x) / √(var x + 1e-8),   mean and variance (ddof 1) over all tokens of the batch
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)

    With beta above 0 a token pays for the divergence of all tokens from it on.
    """
    return Objective(WhitenedReturn(beta), Clip(FixedBounds(low, high)), TokenMean())


@REINFORCE_PP
def reinforce_pp_baseline(
    *,
    low: Low = 0.2,
    high: High = 0.2,
    beta: Annotated[NotNegative, "coefficient of the k2 divergence from the reference in the loss; 0 needs none"] = 0.0,
) -> Objective:
    """Takes the group's mean as the baseline and the batch's deviation as the scale.

        A_it = whiten(R_i − mean_g R),   whiten as in reinforce_pp: over all tokens of the batch
        J = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_it, clip(r_it, 1−low, 1+high) A_it) − beta/2 · (lp − lp_ref)²_it ]

    Unlike in GRPO a group of small deviation counts no more than the others.
    """
    penalties = (ReferenceKl(beta, K2()),) if beta else ()
    return Objective(WhitenedBaseline(), Clip(FixedBounds(low, high)), TokenMean(), penalties=penalties)


class Greedy(Supplied):
    """The reward of a greedy response to the prompt."""

    gives = "baseline"
    fact = Fact("the reward of a greedy response to the prompt", shape="[N]")

    def supply(self, rollouts: Rollouts, sampler: Sampler) -> Tensor:
        return sampler.greedy(rollouts)


class OverBaseline(CreditStage):
    """R_i − b_i."""

    by: Greedy = Greedy()

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        advantage = (rollouts.reward + bonus).double() - rollouts.need("baseline").double()
        return advantage[:, None].expand(rollouts.mask.shape)


@Paper(
    "ReMax: A Simple, Effective, and Efficient Reinforcement Learning Method for Aligning Large Language Models",
    "2310.10505",
    "code",
    "a framework's estimator was read, not the authors' code",
    code=VERL,
)
def remax(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """The advantage is the reward minus the reward of a greedy response.

        A_i = R_i − b_i,   b_i = R(greedy response to the prompt of i)      (`baseline`)
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    The baseline does not depend on the response, so the gradient is unbiased, and a group of one learns.
    Defaults: clip 0.2/0.2 and the token mean are the usual loss of a framework with this estimator.
    Departures: the paper's loss is the unclipped policy gradient of whole sequences, one response a prompt. Every token
    gets the whole reward of its response; rewards of single tokens are not read.
    Reductions: where b is the mean of the group's rewards it is Dr. GRPO's advantage.
    Note: the greedy response costs sampled tokens: `continued_tokens` of a run counts them.
    """
    return Objective(OverBaseline(), Clip(FixedBounds(low, high)), TokenMean())


class RescaledAdvantage(CreditStage):
    """(R − mean_g) · B / (B − M), M counting the responses in groups of equal rewards."""

    across_groups = True

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = (rollouts.reward + bonus).double()
        teaching = groups.varied(reward).sum().clamp(min=1)
        advantage = GroupAdvantage(std=False).of(groups, reward) * groups.valid.sum() / teaching
        return advantage[:, None].expand(rollouts.mask.shape)


@Paper(
    "GPG: A Simple and Strong Reinforcement Learning Baseline for Model Reasoning",
    "2504.02546",
    "code",
    code="AMAP-ML/GPG@e096da8:open-r1/src/open_r1/gpg_trainer.py; "
    "AMAP-ML/GPG@e096da8:R1-V/src/r1-v/src/open_r1/trainer/grpo_trainer.py",
)
def gpg(
    *, sequence_mean: Annotated[bool, "take the mean of response means, not the mean over all tokens"] = False
) -> Objective:
    """The plain policy gradient of group advantages, without ratio, clip or deviation.

        A_i = (R_i − mean_g R) · B / (B − M)
        J = 1/Σ|o_i| Σ_i Σ_t A_i lp_it

    B responses, M of them in groups whose rewards are all equal: their gradient is 0, and the others make up for it.
    Defaults: the token mean of the paper.
    Departures: the authors' code for vision (R1-V, Visual-RFT, VisualThinker-R1-Zero) takes the mean of response means:
    sequence_mean=True. Their code for mathematics (open-r1, open-rs) takes the token mean. There is no importance
    ratio: after the first update on a batch the gradient belongs to an old sample.
    Reductions: at lp = lp_old and with mixed groups only, the gradient is the one with Dr. GRPO's advantage and a token
    mean.
    """
    return Objective(RescaledAdvantage(), LogLikelihood(), SequenceMean() if sequence_mean else TokenMean())


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
    """The plain policy gradient with the group's mean reward, weighted by length, as the baseline.

        A_i = R_i − Σ_{j in g} |o_j| R_j / Σ_{j in g} |o_j|
        J = 1/Σ|o_i| Σ_i Σ_t A_i lp_it

    The baseline of least variance weighs by the gradient's squared norm, which is taken to grow with the length.
    Departures: the token mean is a framework's. There is no importance ratio for further updates on a batch.
    Reductions: with equal lengths the advantage is Dr. GRPO's.
    """
    return Objective(LengthWeighted(), LogLikelihood(), TokenMean())


RAFT = Paper(
    "A Minimalist Approach to LLM Reasoning: from Rejection Sampling to Reinforce",
    "2504.11343",
    "code",
    code="RLHFlow/Minimal-RL@e3b49f0:verl/trainer/ppo/core_algos.py",
    about="""
    All tokens count in the denominators. The paper finds, with Reinforce-Rej, that skipping groups of equal rewards is
    what helps GRPO, not the normalisation.
    Departures: the authors' scripts add a k3 divergence of 0.001 from the reference, and their framework a dual clip of
    3 for negative rewards.
    Reductions: at lp = lp_old RAFT and RAFT++ have the same gradient. With rewards 0 and 1 and mixed groups only
    Reinforce-Rej is RAFT++.
    """,
)


class PositiveReward(CreditStage):
    """max(R, 0), whatever the group."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return (rollouts.reward + bonus).clamp(min=0)[:, None].expand(rollouts.mask.shape)


class MixedReward(CreditStage):
    """The reward in groups whose rewards differ, 0 in the others."""

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        # The rewards before shaping: a length penalty must not make a group mixed.
        mixed = Groups.of(rollouts.group, rollouts.mask.any(1)).varied(rollouts.reward)
        return torch.where(mixed, rollouts.reward + bonus, 0.0)[:, None].expand(rollouts.mask.shape)


@RAFT
def raft() -> Objective:
    """Log-likelihood of right responses, weighted by their reward.

        J = 1/Σ|o_i| Σ_i Σ_t max(R_i, 0) lp_it

    There is no baseline: a group of equal positive rewards teaches too.
    """
    return Objective(PositiveReward(), LogLikelihood(), TokenMean())


@RAFT
def raft_pp(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """RAFT with an importance ratio and its clip.

        A_i = max(R_i, 0),   J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    A token whose ratio has passed 1 + high gets no gradient; RAFT pushes it on.
    Defaults: clip 0.2/0.2 (code).
    """
    return Objective(PositiveReward(), Clip(FixedBounds(low, high)), TokenMean())


@RAFT
def reinforce_rej(*, low: Low = 0.2, high: High = 0.2) -> Objective:
    """The reward itself is the advantage, in groups that hold right and wrong responses.

        A_i = R_i where the rewards of the group differ, 0 elsewhere
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    With rewards −1 and 1 wrong answers are pushed down; with 0 and 1 they teach nothing.
    Defaults: clip 0.2/0.2 (code).
    """
    return Objective(MixedReward(), Clip(FixedBounds(low, high)), TokenMean())


@Paper(
    "Shrinking the Variance: Shrinkage Baselines for Reinforcement Learning with Verifiable Rewards",
    "2511.03710",
    "own",
    "the idea of the baseline is the paper's, whose abstract was read; estimate, surrogate and choice are ours",
)
def eb_cispo(*, high: Ceiling = 2.0, low: Floor = 1.0) -> Objective:
    """Shrinks the group's baseline toward the mean of other prompts; the importance weight is clipped and detached.

        V_i = ((n−1) · mean of the group's others + κ · mean of the other groups) / (n − 1 + κ)
        κ   = within / between,   within = Σ_i (R_i − mean_g R)² / (N − K) for K groups of n responses
        between = variance of the K group means − within · the mean of 1/n over the groups
        A_i = (R_i − V_i) / (std of the batch + 1e-6)
        J = 1/Σ|o_i| Σ_i Σ_t sg[clip(r_it, 1−low, 1+high)] · A_i · lp_it

    Where prompts differ by no more than chance (between ≤ 0), V is the mean of the other groups; where they differ
    much, V is nearly RLOO's. A group with only wrong responses still has negative advantages where other prompts earn
    more.
    Defaults: high 2.0, so that a token weighs at most 3; low 1.0, which leaves the lower side open. Both were chosen,
    with the parts, among 16 candidates by a rule written down before.
    EBPO (2602.05165) shrinks toward a mean that it remembers over batches; this method remembers nothing.
    Reductions: with one group in the batch the credit is RLOO's over the deviation; at lp = lp_old the gradient is the
    plain policy gradient's.
    """
    return Objective(ShrunkAdvantage(), DetachedClip(FixedBounds(low, high)), TokenMean())
