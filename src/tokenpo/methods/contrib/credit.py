"""Credit from drafts, from parts of a response, and from the norm of a token's gradient."""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import torch
from torch import Tensor

from ...base.errors import TokenPOError
from ...core.facts import COUNT, PROBABILITY, Fact
from ...core.objective import Objective
from ...core.ops import masked
from ...core.ops.group import Groups
from ...core.ops.ratio import log_ratio
from ...core.ops.turns import Turns
from ...core.parts.correction import RolloutCorrection
from ...core.parts.credit import GAIN, GroupAdvantage
from ...core.parts.loss import SequenceMean, TokenMean
from ...core.parts.part import CreditStage, Sampler, Supplied
from ...core.parts.surrogate import Clip, FixedBounds
from ...core.ranges import Count, NotNegative, TokenId, at_least, whole
from ...core.types import Rollouts
from ..baselines import grpo
from ..options import Beta, High, Low
from ..paper import VERL, Paper

TEMPLATE = "{prompt}\n\nA draft of an answer:\n{draft}\n\nImprove it, or write a better one.\n"
Prompt = str | Sequence[Mapping[str, Any]]


class Drafts(Supplied):
    """How many drafts are sampled for a problem, and the `template` that puts the best into its prompt.

    The best draft has the largest reward; of equal ones the first sampled is taken. Drafts are not trained on.
    """

    gives, unread = "drafts", True
    fact = Fact("number of drafts of which the prompt shows the best", COUNT, shape="[N]")
    count: Count = 8
    template: str = TEMPLATE

    def __post_init__(self) -> None:
        super().__post_init__()
        if "{draft}" not in self.template:
            raise TokenPOError(f"Drafts: the template {self.template!r:.80} names no {{draft}}: say where it stands")

    def supply(self, rollouts: Rollouts, sampler: Sampler) -> Tensor:
        return torch.full_like(rollouts.group, self.count)

    def prompt(self, prompt: Prompt, draft: str) -> str | list[dict[str, Any]]:
        """The second prompt, as text or chat messages; of messages, the template is applied to the last one."""
        if not isinstance(prompt, str):
            *before, last = prompt
            return [*map(dict, before), {**last, "content": self.prompt(last["content"], draft)}]
        values = {"{prompt}": prompt, "{draft}": draft}
        return re.sub("|".join(map(re.escape, values)), lambda match: values[match[0]], self.template)


class RefinedAdvantage(GroupAdvantage):
    """`GroupAdvantage` of responses to prompts that show a draft."""

    by: Drafts = Drafts()


@Paper(
    "iGRPO: Self-Feedback-Driven LLM Reasoning",
    "2602.09000",
    "second-hand + reconstructed",
    "only the abstract and summaries were read",
)
def igrpo(
    *,
    drafts: Annotated[Count, "number of drafts sampled for each problem; they are not trained on"] = 8,
    template: Annotated[str, "second prompt: {prompt} is the first, {draft} the draft of largest reward"] = TEMPLATE,
    low: Low = 0.2,
    high: High = 0.2,
    beta: Beta = 0.0,
) -> Objective:
    """GRPO on responses to prompts that contain the best of several drafts.

        d_1, ..., d_drafts ~ π_old(· | x),   d* = the draft of the largest reward
        o_1, ..., o_G ~ π_old(· | x, d*),    the group that is compared and trained on
        A_i, J as in GRPO, every probability given x and d*

    Drafts are not trained on, and a test asks once, without drafts.
    Defaults: ours: 8 drafts, the template, the first of equal drafts, beta 0 and clip 0.2/0.2.
    Note: drafts cost sampled tokens, which `continued_tokens` of a run counts. A loop of your own calls
    `objective.credit.by.prompt(prompt, draft)`.
    Reductions: without a draft in the prompt it is GRPO; the loss itself is GRPO's.
    """
    credit = RefinedAdvantage(by=Drafts(drafts, template))
    return dataclasses.replace(grpo(low=low, high=high, beta=beta), credit=credit)


MOST = 10  # segments of a response, of which up to 2^10 subsets are scored
ROUNDING = 1e-6  # a group's deviation that is smaller, relative to its differences between segments, is rounding
Scorer = Callable[[Sequence[tuple[int, list[int]]]], Sequence[float]]


class Coalitions(Supplied):
    """Divides a response into K segments and computes the exact Owen value of each.

        φ_k = mean of v(S ∪ k) − v(S) over the allowed orders of the segments, S the segments before k
        v(S) = reward of a response that consists of the segments S alone, in their order;  Σ_k φ_k = R − v(∅)

    An allowed order keeps the segments of a union together. With one segment per union, or a single union, φ is the
    Shapley value.

    Args:
        segments: largest K, 1 to 10; a response with fewer units has one segment per unit.
        separator: id of the token that ends a unit, such as a newline; None makes every token a unit. The units of a
            response are divided among its segments as evenly as possible.
        union: number of neighbouring segments in a union.
    """

    gives, fact = "gain", GAIN
    segments: Annotated[int, whole(1, MOST)]
    separator: TokenId | None = None
    union: Count = 1

    @property
    def reads(self) -> set[str]:
        return {self.gives} if self.separator is None else {self.gives, "token_ids"}

    def segment(self, rollouts: Rollouts) -> Tensor:
        """[N, T] int, the segment of each token, counted from 0; a tool's tokens belong to a segment next to them."""
        mask = rollouts.mask
        if self.separator is None:
            unit = (mask.cumsum(1) - 1).clamp(min=0)
        else:
            ends = mask & (rollouts.need("token_ids") == self.separator)
            unit = ends.cumsum(1) - ends.long()
        units = torch.where(mask, unit, 0).amax(1, keepdim=True) + 1
        return unit.clamp(max=units - 1) * units.clamp(max=self.segments) // units

    def supply(self, rollouts: Rollouts, sampler: Sampler) -> Tensor:
        return self.gain(rollouts, sampler.score)

    def gain(self, rollouts: Rollouts, score: Scorer) -> Tensor:
        """[N, T] the Owen value of the token's segment, in units of the reward; reads token_ids.

        `score` takes a list of (row, token ids of a subset of its response) and gives their rewards. It is called once,
        with each distinct subset of a group once, and without whole responses, whose reward is known.
        """
        ids, of_token, group = rollouts.need("token_ids"), self.segment(rollouts).cpu(), rollouts.group.tolist()
        parts = [self._parts(*row) for row in zip(ids.tolist(), of_token.tolist(), rollouts.mask.tolist(), strict=True)]
        row_of: dict[tuple[int, tuple[int, ...]], int] = {}
        for row, subsets in enumerate(parts):
            for part in subsets.values():
                row_of.setdefault((group[row], part), row)
        rewards = dict(zip(row_of, score([(row, list(part)) for (_, part), row in row_of.items()]), strict=True))
        worth = torch.zeros(len(rollouts), self.segments, dtype=torch.float64)
        for row, subsets in enumerate(parts):
            count = len(set(of_token[row, rollouts.mask[row].cpu()].tolist()))
            for members, part in subsets.items():
                worth[row, :count] += owen_weights(count, self.union)[members] * rewards[group[row], part]
            if count:
                worth[row, :count] += owen_weights(count, self.union)[-1] * float(rollouts.reward[row])
        return torch.where(rollouts.mask, worth.gather(1, of_token).to(rollouts.mask.device), 0.0)

    def _parts(self, ids: list[int], of_token: list[int], mask: list[bool]) -> dict[int, tuple[int, ...]]:
        """The token ids of each subset to score, by its bit mask (bit k is segment k); without the whole response."""
        length = max((t + 1 for t, on in enumerate(mask) if on), default=0)
        sets = owen_weights(max(of_token[:length], default=-1) + 1, self.union)[:-1].any(1).nonzero()[:, 0].tolist()
        numbered = list(zip(ids[:length], of_token, strict=False))
        return {members: tuple(token for token, k in numbered if members >> k & 1) for members in sets}


class SegmentShare(CreditStage):
    """A_it = A_i + share · (K φ_k − Σ_j φ_j) / (std_g + eps), k the segment of t, φ from `gain`, A_i from `group`.

    For any φ the mean of A_it over the segments of a response is A_i. A group whose rewards are all equal gets 0; one
    whose rewards are equal up to rounding, no differences between segments.
    """

    reads = {"gain"}
    by: Coalitions
    share: NotNegative = 1.0
    group: GroupAdvantage = GroupAdvantage()

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        mask, reward = rollouts.mask, rollouts.reward + bonus
        groups = Groups.of(rollouts.group, mask.any(1))
        segments = Turns.of(torch.where(mask, self.by.segment(rollouts), 0), mask)
        tokens = segments.sum(torch.ones_like(rollouts.old_logprob)).clamp(min=1)
        worth = segments.sum(rollouts.need("gain")) / tokens
        apart = segments.count[:, None] * worth - worth.sum(1, keepdim=True)
        std = groups.mean_std(reward)[1]
        # Sums of rewards in float32 differ by rounding; divided by such a deviation, a gain would be huge.
        told = groups.varied(reward) & (std > ROUNDING * groups.extremes(apart.abs().amax(1))[1])
        scale = std + self.group.eps if self.group.std else 1.0
        apart = torch.where(told, self.share / scale, 0.0)[:, None] * apart
        return self.group.of(groups, reward)[:, None] + segments.spread(apart)


@functools.cache
def owen_weights(count: int, union: int) -> Tensor:
    """[2^count, count] float64: v(S) [2^count] times this matrix gives the Owen values [count] of the players.

    Bit k of the row number S is player k. Each union has `union` neighbours; the last may have fewer. A set S that no
    value depends on has weights 0.

    >>> owen_weights(2, 1).tolist()
    [[-0.5, -0.5], [0.5, -0.5], [-0.5, 0.5], [0.5, 0.5]]
    """
    weights = torch.zeros(2**count, count, dtype=torch.float64)
    unions = [range(first, min(first + union, count)) for first in range(0, count, union)]
    for player in range(count):
        others = [sum(1 << x for x in members) for members in unions if player not in members]
        partners = [1 << x for members in unions if player in members for x in members if x != player]
        for outside, inside in itertools.product(_subsets(others), _subsets(partners)):
            before = sum(outside) + sum(inside)
            share = _chance(len(outside), len(others)) * _chance(len(inside), len(partners))
            weights[before | 1 << player, player] += share
            weights[before, player] -= share
    return weights


def _subsets(of: Sequence[int]) -> list[tuple[int, ...]]:
    return [x for size in range(len(of) + 1) for x in itertools.combinations(of, size)]


def _chance(before: int, others: int) -> float:
    """Probability that, in a random order, exactly a given set of `before` of the `others` precedes a player."""
    return 1 / ((others + 1) * math.comb(others, before))


@Paper(
    "Owen-Shapley Policy Optimization: A Principled RL Algorithm for Generative Search LLMs",
    "2601.08403",
    "second-hand + reconstructed",
    "only the abstract and summaries were read",
)
def ospo(
    *,
    segments: Annotated[int, "largest number of segments of a response", whole(1, MOST)] = 4,
    separator: Annotated[TokenId | None, "id of the token that ends a unit; segments are of whole units"] = None,
    union: Annotated[Count, "number of neighbouring segments of a union; 1 is Shapley's value"] = 2,
    share: Annotated[NotNegative, "factor of the segments' differences; 0 is GRPO"] = 1.0,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Credits each segment with the reward that parts of the response earn with it and do not earn without it.

        v(S)  = R of the response made of the segments S alone, in their order
        φ_ik  = the Owen value of segment k: the mean of v(S ∪ k) − v(S) over orders that keep unions together  (`gain`)
        A_i   = (R_i − mean_g R) / (std_g R + 1e-6)
        A_it  = A_i + share · (K_i φ_ik − Σ_j φ_ij) / (std_g R + 1e-6),   k the segment of t, K_i segments
        J = 1/N Σ_i 1/|o_i| Σ_t min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)

    The mean of A_it over the segments is A_i: credit only moves between segments.
    Defaults: ours: four segments of nearly equal numbers of tokens, two to a union (`separator` cuts at lines, the
    paper at phrases and sentences); omitted segments are cut from the text; all coalitions of at most ten segments are
    scored; share 1; GRPO's clip and denominator.
    Notes: φ_k depends on later segments, so the paper's claim that the optimal policy stays the same does not follow.
    The embedded engine scores 11 parts of a response by default.
    Reductions: share = 0, one segment, or segments of equal value are GRPO.
    """
    credit = SegmentShare(Coalitions(segments, separator, union), share)
    return Objective(credit, Clip(FixedBounds(low, high)), SequenceMean())


EPS = 1e-8

ZeroTail = Annotated[bool, "no baseline where a single rollout of the group is left"]
ByToken = Annotated[bool, "rewards arrive at tokens, read from `Rollouts.token_reward`; else all of it at the end"]
Cap = Annotated[float, at_least(1)]


class Collision(Supplied):
    """Σ_v π_v² of the old policy."""

    gives = "old_collision"
    fact = Fact(
        "Σ_v π_v² of the old policy, the probability that two samples agree",
        PROBABILITY,
        neutral=1.0,
        formula=lambda logp: (2 * logp).exp().sum(-1),
    )


class OptimalBaseline(CreditStage):
    """The reward still to come less the group's mean of it at the same token, weighted by the norm of the gradient.

    `cap` bounds the weight of the sampling engine in the norm; None leaves it out.
    """

    zero_tail: ZeroTail = True
    steps: ByToken = False
    cap: Cap | None = None
    collision: Collision = Collision()

    @property
    def reads(self) -> set[str]:
        steps, sampler = {"token_reward"} if self.steps else set(), {"rollout_logprob"} if self.cap else set()
        return steps | sampler

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        mask, groups = rollouts.mask, Groups.of(rollouts.group, rollouts.mask.any(1))
        order = (~mask).int().argsort(dim=1, stable=True)  # response tokens first
        here = mask.gather(1, order)
        to_come = self._to_come(rollouts, bonus).gather(1, order)
        norm = masked.keep(self._norm(rollouts), mask).gather(1, order).cumsum(1) * here
        least = to_come.new_full((groups.count, mask.shape[1]), torch.inf)
        index = groups.index[:, None].expand_as(to_come)
        least.scatter_reduce_(0, index, torch.where(here, to_come, torch.inf), "amin")
        over = torch.where(here, to_come - least[groups.index], 0.0)
        advantage = over - groups.sum(norm * over) / (groups.sum(norm) + EPS)
        alone = groups.sum(here.long()) == 1
        bare = alone if self.zero_tail else alone & (groups.size() == 1)[:, None]
        return torch.zeros_like(advantage).scatter(1, order, torch.where(bare, to_come, advantage))

    def _to_come(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        """[N, T] G, float64."""
        if not self.steps:
            return (rollouts.reward + bonus).double()[:, None].expand(rollouts.mask.shape)
        return rollouts.need("token_reward").double().flip(1).cumsum(1).flip(1) + bonus[:, None]

    def _norm(self, rollouts: Rollouts) -> Tensor:
        """[N, T] w, float64; rounding makes no norm negative."""
        norm = (1 - 2 * rollouts.old_logprob.double().exp() + rollouts.need("old_collision").double()).clamp(min=0.0)
        if self.cap is None:
            return norm
        log = log_ratio(rollouts.old_logprob, rollouts.need("rollout_logprob")).double()
        return norm * log.exp().clamp(max=self.cap).square()


@Paper(
    "The Optimal Token Baseline: Variance Reduction for Long-Horizon LLM-RL",
    "2602.07078",
    "code",
    "the theorem's own text was not read",
    code=VERL,
)
def otb(
    *,
    zero_tail: ZeroTail = True,
    token_reward: ByToken = False,
    rollout_cap: Annotated[Cap | None, "largest weight that corrects for the sampling engine; None: no weight"] = None,
    low: Low = 0.2,
    high: High = 0.2,
) -> Objective:
    """Each token's baseline is the group's mean return, weighted by the squared gradient norms up to that token.

        w_it = 1 − 2 π_it + Σ_v π_v²,   at the old policy: the squared norm of the gradient in the logits
        W_it = Σ_{j ≤ t} w_ij,          with a correction for the sampling engine w_ij ρ_ij², ρ = min(π_old/π_roll, cap)
        B_gt = Σ_i W_it G_it / (Σ_i W_it + 1e-8),   over the rollouts of the group that reach token t
        A_it = G_it − B_gt
        J = 1/Σ|o_i| Σ_i Σ_t [ρ_it] min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)

    G_it is the reward still to come: R_i where it all arrives at the end, the sum of `token_reward` from t on
    otherwise. [ρ_it] stands for a factor that only the correction has.
    Defaults: zero_tail as in the code that was read: where a single rollout is left, B = 0. The clip, 0.2 on both
    sides, and the token mean are the framework's.
    Departures: token t is the t-th response token, tool tokens left out, as in the framework. A group of one keeps its
    reward as its advantage, as there.
    Reductions: rewards at the end, one token for each response and W all equal: Dr. GRPO's advantage.
    """
    credit = OptimalBaseline(zero_tail, token_reward, rollout_cap)
    weights = () if rollout_cap is None else (RolloutCorrection(cap=rollout_cap),)
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), weights=weights)
