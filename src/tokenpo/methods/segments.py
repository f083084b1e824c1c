"""Credit measured on tokens, turns and segments of a response."""

from dataclasses import replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from ..base.errors import TokenPOError
from ..core.objective import Objective
from ..core.ops.group import Groups
from ..core.ops.turns import Turns
from ..core.parts.credit import (
    BehindToken,
    Continuations,
    EveryTokens,
    GroupAdvantage,
    Improbable,
    RewardToGo,
    WhitenedGain,
    improbable,
)
from ..core.parts.loss import ReferenceKl, SequenceMean, TokenMean
from ..core.parts.part import BatchSignal, CreditStage, Look, Signal
from ..core.parts.surrogate import Clip, FixedBounds
from ..core.parts.weights import Keep, RowNormalised, SignalWeight
from ..core.ranges import Count, Fraction, NotNegative, Share, TokenId, whole
from ..core.types import Batch, Rollouts
from .options import Beta, High, Low
from .paper import Paper


@Paper(
    "VinePPO: Refining Credit Assignment in RL Training of LLMs",
    "2410.01679",
    "code",
    code="McGill-NLP/VinePPO@efe7228:src/treetune/episode_generators/math_episode_generator_with_mc_advantages.py; "
    "McGill-NLP/VinePPO@efe7228:src/treetune/trainers/ppo_trainer.py",
)
def vineppo(
    *,
    every: Annotated[Count, "number of tokens of a step"] = 16,
    separator: Annotated[TokenId | None, "id of the token that ends a step, in place of `every`"] = None,
    continuations: Annotated[Count, "number of continuations sampled from each step"] = 9,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """A step's advantage is the mean reward of continuations after it minus the mean reward of those before it.

        V(s)  = mean R of `continuations` continuations from s, at the first token of every step
        A_it  = V(after the step of t) − V(before it);   after the last step R_i takes the place of V      (`gain`)
        Â_it  = (A_it − mean A) / √(var A + 1e-8),   over all tokens of the batch
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it Â_it, clip(r_it, 1−low, 1+high) Â_it)

    Defaults: 9 continuations, clip 0.2/0.2 (code). A step is `every` tokens, 16 (ours): the authors cut at the lines of
    a solution, which separator=ID does, where ID is the token of a newline.
    Departures: the authors skip a minibatch whose mean ratio exceeds 10. Their scripts add a divergence of 0.0001 from
    the reference: here `train.reference_kl`. Responses that were cut off keep the reward that the task gives them.
    Note: `continued_tokens` of a run counts the tokens of continuations.
    """
    cuts = EveryTokens(every) if separator is None else BehindToken(separator)
    return Objective(WhitenedGain(Continuations(cuts, continuations)), Clip(FixedBounds(low, high)), TokenMean())


class OverImprobable(Signal):
    """1[p_old < below] over its mean on the rollout batch's tokens: it turns a mean over all into one over these."""

    below: Fraction

    def __call__(self, rollouts: Rollouts) -> Tensor:
        kept = improbable(rollouts, self.below)
        return (kept.double() * rollouts.mask.sum() / kept.double().sum().clamp(min=1)).to(rollouts.old_logprob.dtype)


@Paper(
    "Segment Policy Optimization: Improved Credit Assignment in Reinforcement Learning for LLMs",
    "2505.23564",
    "code",
    code="AIFrameResearch/SPO@b9fc6a2:src/treetune/episode_generators/math_episode_generator_with_mc_advantages.py; "
    "AIFrameResearch/SPO@b9fc6a2:src/treetune/trainers/ppo_trainer.py",
)
def spo(
    *,
    interval: Annotated[Count, "number of improbable tokens of a segment"] = 5,
    below: Annotated[Fraction, "tokens whose old probability is below this are improbable"] = 0.9,
    continuations: Annotated[Count, "number of continuations sampled from each cut"] = 9,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Credits segments between improbable tokens with their rise in mean reward; only improbable tokens learn.

        cuts: before the 1st, (1 + interval)-th, (1 + 2 interval)-th ... of the tokens with p_old < below
        V(s)  = mean R of `continuations` continuations from s, at every cut
        A_it  = V(after the segment of t) − V(before it);   after the last R_i, before the first cut 0     (`gain`)
        Â_it  = (A_it − mean A) / √(var A + 1e-8) over the tokens with p_old < below, 0 on the others
        J = mean over the tokens with p_old < below of min(r_it Â_it, clip(r_it, 1−low, 1+high) Â_it)

    Defaults: as in the code.
    Departures: as `vineppo`. The mean of J is over the rollout batch, theirs over a minibatch. The paper's tree, in
    which continuations are trained on too, is not implemented.
    Note: `continued_tokens` of a run counts the tokens of continuations.
    """
    credit = WhitenedGain(Continuations(Improbable(interval, below), continuations), below)
    weights = (SignalWeight(OverImprobable(below)),)
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), weights=weights)


S_GRPO = Paper(
    "Token-Efficient RL for LLM Reasoning",
    "2504.20834",
    "reconstructed",
    "unknown: how tokens are drawn, their share, and the denominator",
)
T_SPMO = replace(S_GRPO, note="unknown: the credit of a pair, the denominator, and prefixes at which no responses part")
Always = Annotated[int, whole(0)]


class RandomTokens(BatchSignal):
    """1.0 at randomly kept tokens: each with probability `fraction`, the first `always` of a response always."""

    draws = True
    fraction: Fraction
    always: Always

    def __call__(self, batch: Batch, trust: Look, generator: torch.Generator) -> Tensor:
        # One number per token, none for padding: the width of the batch makes no difference.
        uniform = torch.rand(int(batch.mask.sum()), generator=generator).to(batch.mask.device)
        drawn = torch.zeros_like(batch.mask).masked_scatter(batch.mask, uniform < self.fraction)
        first = batch.mask.cumsum(1) <= self.always
        return (batch.mask & (drawn | first)).to(batch.policy.logprob.dtype)


class PrefixTree(CreditStage):
    """The mean reward after a token minus that after its alternatives at the prefix; `pairs` counts each pair once."""

    across_groups = True
    reads = {"token_ids"}
    pairs: bool

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        tokens = rollouts.need("token_ids")
        reward = (rollouts.reward + bonus).double()
        advantage = torch.zeros(rollouts.mask.shape, dtype=torch.float64, device=reward.device)
        branches = advantage.new_zeros(())
        node = rollouts.group
        for t in range(rollouts.mask.shape[1]):
            alive = rollouts.mask[:, t]
            # Responses that share no prefix cannot branch any more.
            if (Groups.of(node, rollouts.mask[:, t:].any(1)).size() <= 1).all():
                break
            pair = torch.unique(torch.stack([node, tokens[:, t]]), dim=1, return_inverse=True)[1]
            here, on = Groups.of(node, alive), Groups.of(pair, alive)
            rest = here.size() - on.size()
            branch = alive & (rest > 0)
            shared = on.size().clamp(min=1)
            gain = on.sum(reward) / shared - (here.sum(reward) - on.sum(reward)) / rest.clamp(min=1)
            # Equal rewards give no gain, whatever rounding does to their means.
            gain = torch.where(branch & here.varied(reward), gain, 0.0)
            advantage[:, t] = gain / shared if self.pairs else gain
            branches = branches + (branch.double() / shared).sum()
            # A row that has ended is ignored from here on; its id must only differ from the other rows'.
            node = pair
        if not self.pairs:
            return advantage
        return advantage * rollouts.mask.sum() / branches.clamp(min=1)


@S_GRPO
def s_grpo(
    *,
    fraction: Annotated[Fraction, "probability of a token to be kept"] = 0.5,
    low: Low = 0.2,
    high: High = 0.2,
    always: Annotated[Always, "number of first tokens of a response that are always kept"] = 0,
) -> Objective:
    """Each response learns from a random part of its tokens.

    The abstract says that the loss is computed on a small subset of the tokens. How the subset is drawn is ours.

        kept_it = 1[t ≤ always] or 1[u_it < fraction],   u uniform in [0, 1)
        J = 1/N Σ_i 1/kept_i Σ_t kept_it · min(r_it A_i, clip(r_it, 1−low, 1+high) A_i),   kept_i = Σ_t kept_it

    Defaults: ours.
    Reductions: fraction = 1 is GRPO.
    """
    weight = RowNormalised(Keep(RandomTokens(fraction, always)))
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), SequenceMean(), weights=(weight,))


@T_SPMO
def t_spmo(
    *,
    count: Annotated[
        Literal["pairs", "rollouts"], "count each distinct pair of prefix and token once, or each token of each rollout"
    ] = "pairs",
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Compares the mean reward after a token with that after its alternatives at the same prefix.

        A_it = A(o_i,<t, o_it),   J_it = min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)
        A(u, v)  = mean R of the responses that go on from prefix u with token v
                 − mean R of those that go on from u with another token;   0 where none does
        count="pairs":     J = 1/|U| Σ_{(u, v) in U} mean of J_it over the responses that go through (u, v)
        count="rollouts":  J = 1/Σ|o_i| Σ_i Σ_t J_it

    U is the set of pairs at which responses of a group branch, over the rollout batch. A response that ends at u has no
    next token there.
    Defaults: ours.
    """
    return Objective(PrefixTree(count == "pairs"), Clip(FixedBounds(low, high)), TokenMean())


OfTurn = Annotated[NotNegative, "weight of the first turn's own advantage"]
Outcomes = Annotated[Count, "number of last reward functions that judge the outcome; the others judge the first turn"]


class FirstTurn(CreditStage):
    """The advantage of the outcome, and in the first of several turns also the turn's."""

    reads = {"rewards", "turn"}
    coef: OfTurn
    outcome_rewards: Outcomes
    group: GroupAdvantage
    joint: bool = False

    @property
    def columns(self) -> int:
        return self.outcome_rewards + 1

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        each, alive = rollouts.need("rewards").nan_to_num(0.0).double(), rollouts.mask.any(1)
        if each.shape[1] < self.outcome_rewards:
            raise TokenPOError(
                f"mt_grpo: the last {self.outcome_rewards} rewards judge the outcome, and Rollouts.rewards has "
                f"{each.shape[1]} columns: give at least that many, and those of the turn before them"
            )
        of_turn = each[:, : -self.outcome_rewards].sum(1)
        of_outcome = each[:, -self.outcome_rewards :].sum(1) + bonus
        groups, turns = Groups.of(rollouts.group, alive), Turns.of(rollouts.need("turn"), rollouts.mask)
        if self.joint:
            whole = of_outcome + self.coef * of_turn
            sums = torch.where(turns.index == 0, whole[:, None], of_outcome[:, None])
            (mean, std), (later, other) = groups.mean_std(whole), groups.mean_std(of_outcome)
            apart = sums - torch.where(turns.index == 0, mean[:, None], later[:, None])
            varied = groups.varied(whole) | groups.varied(of_outcome)
            return torch.where(varied[:, None], apart / (torch.maximum(std, other) + self.group.eps)[:, None], 0.0)
        turn, outcome, both = (self.group.of(groups, x)[:, None] for x in (of_turn, of_outcome, of_turn + of_outcome))
        called = (turns.count > 1)[:, None]
        return torch.where(called, outcome + self.coef * turn * (turns.index == 0), both)


@Paper(
    "Reinforcing Multi-Turn Reasoning in LLM Agents via Turn-Level Credit Assignment",
    "2505.11821",
    "code",
    code="SiliangZeng/Multi-Turn-RL-Agent@7860de6:verifiers/trainers/mt_grpo_env_trainer.py; "
    "SiliangZeng/Multi-Turn-RL-Agent@3f06c26:verifiers/examples/triviaqa_search.py",
)
def mt_grpo(
    *,
    coef: OfTurn = 1.0,
    outcome_rewards: Outcomes = 1,
    norm: Annotated[
        Literal["each", "joint"], "divide each sum by its own deviation, or all by the larger one of total and outcome"
    ] = "each",
    low: Low = 0.2,
    high: High = 0.2,
    beta: Beta = 0.0,
) -> Objective:
    """Gives the reward of a tool call to the turn that made the call, and the outcome's reward to all tokens.

        norm(x)_i = (x_i − mean_g x) / (std_g x + 1e-4)
        A_it = norm(R^out)_i + coef · norm(R^turn)_i   in the first turn, before the tool's result
               norm(R^out)_i                           after it
               norm(R^turn + R^out)_i                  where no result came
        J = 1/Σ|o_i| Σ_i Σ_t [ min(r_it A_it, clip(r_it, 1−low, 1+high) A_it) − beta · k3(π_ref/π) ]

    With norm="joint" there is one scale, d, and with x = R^out + coef R^turn
        A_it = (x_i − mean_g x) / d in the first turn,   (R^out_i − mean_g R^out) / d after it
        d = max(std_g x, std_g R^out) + 1e-4

    R^out is the sum of the last `outcome_rewards` reward functions, R^turn the sum of those before them.
    Defaults: coef 1, clip 0.2 and the token mean as in the authors' code; one reward function for the outcome (four in
    their example); beta 0 (0.01 in their example).
    Note: the authors' form has three scales, and a response's scale depends on whether it called a tool. So the
    expected update is not the gradient of any reward. norm="joint", ours, follows the gradient of R^out + coef R^turn,
    up to its scale.
    Departures: the authors weigh each reward function. Here a result came where the response has a second turn. Turns
    after the first share one advantage. The code's second form is left out.
    Reductions: with one turn for each response it is GRPO of the sum of all rewards, with eps 1e-4 and the token mean;
    norm="joint" only up to the scale.
    """
    credit = FirstTurn(coef, outcome_rewards, GroupAdvantage(eps=1e-4), norm == "joint")
    penalties = (ReferenceKl(beta),) if beta else ()
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), penalties=penalties)


Omega = Annotated[NotNegative, "weight of the comparison of turns"]
ByTurn = Annotated[bool, "in the group's mean a trajectory counts once for each of its turns"]


class GroupInGroup(CreditStage):
    """The trajectory's advantage in its group plus `omega` times the turn's among turns from the same state."""

    step: RewardToGo
    omega: Omega = 1.0
    by_turn: ByTurn = True

    reads = {"turn"}

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = rollouts.reward + bonus
        turns = Turns.of(rollouts.need("turn"), rollouts.mask)
        mean, std = groups.mean_std(reward, weight=turns.count if self.by_turn else None)
        centred = reward.double() - mean
        episode = torch.where(groups.varied(reward), centred / (std + self.step.eps) if self.step.std else centred, 0.0)
        return episode[:, None] + self.omega * self.step(rollouts, bonus)


@Paper(
    "Group-in-Group Policy Optimization for LLM Agent Training",
    "2505.10978",
    "code",
    "the authors' own trainer was read in copies only",
    code="johnhaofu/verl-agent@c23d586:gigpo/core_gigpo.py; langfengQ/DrMAS@3b556f2:gigpo/core_gigpo.py; "
    "cq-dong/verl-agent@595dfc6:examples/gigpo_trainer/run_alfworld.sh",
)
def gigpo(
    *,
    omega: Omega = 1.0,
    gamma: Annotated[Share, "discount from one turn to the next"] = 1.0,
    std: Annotated[bool, "divide by the deviations of rewards and of returns from the same state"] = False,
    eps: Annotated[NotNegative, "added to the deviations"] = 1e-6,
    by_turn: ByTurn = True,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Compares each turn with the turns that began in the same state, and each trajectory with its group.

        G_ik  = s_ik + gamma G_i,k+1,   s_ik the reward that arrives in turn k
        A^E_i = R_i − mean_g R,         in which a trajectory counts once for each of its turns
        A^S_ik = G_ik − mean G,         over the turns of the group that began in the same state
        A_it  = A^E_i + omega A^S_ik,   k the turn of token t
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)   (eq. 3 and 5 to 8)

    Defaults: omega 1, no division by deviations and eps 1e-6, as in the code that was read; its training script divides
    (std=True) and has gamma 0.95. gamma 1 and the clip 0.2 are ours. In DrMAS, a later trainer of the authors, a
    trajectory counts once: by_turn=False.
    Departures: a trajectory is a row and a step is one of its turns; the authors train on steps as rows. The advantages
    are equal. Two states are the same if their `anchor` is.
    Reductions: omega = 0 with one turn for each response is Dr. GRPO's advantage.
    """
    credit = GroupInGroup(RewardToGo(gamma, anchored=True, std=std, eps=eps), omega, by_turn)
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean())
