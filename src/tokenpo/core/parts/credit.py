"""Credit: rewards of a group, with bonuses on them, become advantages; also rewards of continuations."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from ...base.errors import choose
from ..facts import Fact
from ..ops.group import Groups, others_mean, prior_weight
from ..ops.masked import whiten
from ..ops.turns import Turns, gains
from ..ranges import Count, Finite, Fraction, NotNegative, Share, whole
from ..types import Rollouts
from .part import CreditStage, Part, Sampler, Shaping, Supplied


class SoftOverlong(Shaping):
    """DAPO's soft overlong penalty (2503.14476, eq. 13): 0 up to L_max − L_cache tokens, then linear to −1 at L_max.

    Args:
        length: L_max, tokens, ≥ 1.
        cache: L_cache, tokens over which the penalty grows, in 1..length.
    """

    length: Count
    cache: Count

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(cache=whole(1, self.length).because("the length"))

    def __call__(self, rollouts: Rollouts) -> Tensor:
        over = rollouts.mask.sum(1) - (self.length - self.cache)
        return -(over.to(rollouts.reward.dtype) / self.cache).clamp(0.0, 1.0)


class GroupOverlong(Shaping):
    """GTPO's group-relative overlong penalty (2508.04349): long correct responses to easy prompts are penalised.

    On a prompt with accuracy ≥ `easy`, a correct response longer than L⁺ gets −scale · (|o| − L⁺)/L⁺, and −scale from
    2 L⁺ on. L⁺ = max((min + max)/2, mean) of the lengths of the group's correct responses. All other responses get 0.

    Args:
        easy: accuracy from which a prompt counts as easy: the paper's g.
        scale: largest penalty, ≥ 0.
        threshold: a response is correct when its reward exceeds this.
    """

    easy: Share = 0.5
    scale: NotNegative = 0.5
    threshold: Finite = 0.0

    def __call__(self, rollouts: Rollouts) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        correct = groups.valid & (rollouts.reward > self.threshold)
        among_correct = Groups(groups.index, groups.count, correct)
        length = rollouts.mask.sum(1).to(rollouts.reward.dtype)
        accuracy = among_correct.size() / groups.size().clamp(min=1)
        low, high = among_correct.extremes(length)
        target = torch.maximum((low + high) / 2, among_correct.sum(length) / among_correct.size().clamp(min=1))
        excess = ((length - target) / target).clamp(0.0, 1.0)
        return torch.where(correct & (accuracy >= self.easy), -self.scale * excess, 0.0)


class RelativeAdvantage(CreditStage):
    """A_i = (R_i − m_i) / (s_i + eps), the same for every token of a response; exactly 0 where all R compared agree.

    Args:
        mean: the responses whose mean reward is m; "none" is m = 0.
        std: the responses whose standard deviation is s; "none" divides by nothing.
        leave_one_out: m leaves R_i out; a response alone gets 0.
        centred: s is the deviation of R − m rather than of R; over the batch these differ.
        population: s divides by the number of responses, not by that number less 1.
        eps: added to s, ≥ 0.
    """

    mean: Literal["group", "batch", "none"] = "group"
    std: Literal["group", "batch", "none"] = "group"
    leave_one_out: bool = False
    centred: bool = False
    population: bool = False
    eps: NotNegative = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        for over in (self.mean, self.std):
            choose("RelativeAdvantage: mean or std", over, dict.fromkeys(("group", "batch", "none")))

    @property
    def across_groups(self) -> bool:
        return "batch" in (self.mean, self.std)

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        advantage = self.of(groups, rollouts.reward + bonus)
        return advantage.to(rollouts.old_logprob.dtype)[:, None].expand(rollouts.mask.shape)

    def of(self, groups: Groups, reward: Tensor) -> Tensor:
        """Advantage [N] of rewards [N], in float64."""
        x, told, sets = reward.double(), groups.valid, {"group": groups, "batch": groups.one()}
        if compared := sets.get(self.mean):
            x, told = x - compared.mean_std(reward)[0], told & compared.varied(reward)
            if self.leave_one_out:
                size = compared.size()
                x = x * size / (size - 1).clamp(min=1)
        if scaled := sets.get(self.std):
            spread = scaled.mean_std(x if self.centred else reward, correction=int(not self.population))[1]
            x, told = x / (spread + self.eps), told & scaled.varied(reward)
        return torch.where(told, x, 0.0)


class GroupAdvantage(CreditStage):
    """`RelativeAdvantage` within the group: GRPO's (2402.03300).

    Args:
        std: divide by the group's standard deviation (ddof 1); False is Dr. GRPO's advantage.
        eps: added to the standard deviation, ≥ 0.
    """

    std: bool = True
    eps: NotNegative = 1e-6

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return self._relative(rollouts, bonus)

    def of(self, groups: Groups, reward: Tensor) -> Tensor:
        """Advantage [N] of rewards [N], in float64."""
        return self._relative.of(groups, reward)

    @property
    def _relative(self) -> RelativeAdvantage:
        return RelativeAdvantage(std="group" if self.std else "none", eps=self.eps)


class ShrunkAdvantage(CreditStage):
    """A_i = (R_i − V_i) / (std + eps), the same for every token of the response; std (ddof 1) is over the batch.

        V_i = ((n − 1) · mean of the group's others + κ · mean of the other groups) / (n − 1 + κ)
        κ   = variance of rewards within groups / variance between groups, as estimated from the batch

    V_i is an empirical-Bayes estimate of the prompt's mean reward that does not use R_i. A batch whose rewards are all
    equal gets exactly 0.

    Args:
        eps: added to the standard deviation, ≥ 0.
    """

    across_groups = True
    eps: NotNegative = 1e-6

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        groups = Groups.of(rollouts.group, rollouts.mask.any(1))
        reward = (rollouts.reward + bonus).double()
        whole = groups.one()
        # Subtract the lowest reward, so that sums of equal rewards are exactly equal.
        reward = torch.where(groups.valid, reward - whole.extremes(reward)[0], 0.0)
        centred = reward - others_mean(groups, reward, prior_weight(groups, reward))
        advantage = torch.where(whole.varied(reward), centred / (whole.mean_std(reward)[1] + self.eps), 0.0)
        return advantage.to(rollouts.old_logprob.dtype)[:, None].expand(rollouts.mask.shape)


class RewardToGo(CreditStage):
    """A_it = G_ik − mean G, k the turn of token t: the reward to go less its mean over comparable turns of the group.

    G_ik = s_ik + gamma G_i,k+1, where s_ik is the turn's sum of `token_reward`; a bonus is added to the last turn. A
    turn with no comparable other gets exactly 0, and so do comparable turns whose G are all equal.

    Args:
        gamma: discount from one turn to the next, in [0, 1].
        anchored: compare the group's turns that began in the same state (GiGPO, 2505.10978, eq. 7) rather than the
            turns with the same number.
        std: divide by the standard deviation (ddof 1) over the compared turns.
        eps: added to the standard deviation, ≥ 0.
    """

    gamma: Share = 1.0
    anchored: bool = False
    std: bool = False
    eps: NotNegative = 1e-6

    @property
    def reads(self) -> set[str]:
        return {"token_reward", "turn"} | ({"anchor"} if self.anchored else set())

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        mask = rollouts.mask
        turns = Turns.of(rollouts.need("turn"), mask)
        held, place = turns.held, torch.arange(turns.number, device=mask.device).expand(len(mask), -1)
        reward = turns.sum(rollouts.need("token_reward")) + bonus[:, None] * (place == turns.count[:, None] - 1)
        ids = turns.largest(rollouts.need("anchor")) if self.anchored else place
        _, comparable = torch.unique(
            torch.stack([rollouts.group[:, None].expand(held.shape)[held], ids[held]]), dim=1, return_inverse=True
        )
        advantage = torch.zeros_like(reward)
        compared = Groups.of(comparable, torch.ones_like(comparable, dtype=torch.bool))
        advantage[held] = GroupAdvantage(self.std, self.eps).of(compared, turns.to_go(reward, self.gamma)[held])
        return turns.spread(advantage)


def by_group(credit: Callable[[Rollouts, Tensor], Tensor], rollouts: Rollouts, bonus: Tensor) -> Tensor:
    """`credit(rollouts, bonus)` [N, T], computed for one group at a time to save memory."""
    whole = torch.empty_like(rollouts.old_logprob)
    sizes = torch.unique(rollouts.group, return_counts=True)[1].tolist()
    for rows in rollouts.group.argsort(stable=True).split(sizes):
        whole[rows] = credit(rollouts.rows(rows), bonus[rows]).to(whole.dtype)
    return whole


class Cuts(Part):
    """Where responses are cut."""

    def __call__(self, rollouts: Rollouts) -> Tensor:
        """[N, T] bool, true at the first token of a segment; padding may hold anything."""
        raise NotImplementedError


class EveryTokens(Cuts):
    """At the first token, and then at every `every`-th token."""

    every: Count

    def __call__(self, rollouts: Rollouts) -> Tensor:
        place = torch.arange(rollouts.mask.shape[1], device=rollouts.mask.device)
        return (place % self.every == 0).expand(rollouts.mask.shape)


class BehindToken(Cuts):
    """At the first token, and after each token with this id, such as a newline's where each step is a line."""

    reads = {"token_ids"}
    token: int

    def __call__(self, rollouts: Rollouts) -> Tensor:
        matches = rollouts.need("token_ids") == self.token
        return torch.cat([torch.ones_like(matches[:, :1]), matches[:, :-1]], 1)


class Improbable(Cuts):
    """Of the tokens whose old probability is below `below`: at the 1st, the (1 + interval)-th, and so on."""

    interval: Count
    below: Fraction

    def __call__(self, rollouts: Rollouts) -> Tensor:
        rare = improbable(rollouts, self.below)
        return rare & ((rare.cumsum(1) - 1) % self.interval == 0)


class EqualEntropy(Cuts):
    """`count` cuts, the k-th at the first token before which k/(count + 1) of the response's old entropy is reached."""

    reads = {"old_entropy"}
    count: Count

    def __call__(self, rollouts: Rollouts) -> Tensor:
        entropy = torch.where(rollouts.mask, rollouts.need("old_entropy").clamp(min=0), 0.0).double()
        before = entropy.cumsum(1) - entropy
        pieces = (before * (self.count + 1) / entropy.sum(1, keepdim=True).clamp(min=1e-300)).floor()
        pieces = pieces.clamp(max=self.count)
        return torch.cat([torch.zeros_like(pieces[:, :1]), pieces.diff(dim=1)], 1) > 0


GAIN = Fact(
    "change in the expected reward over the token's segment, from continuations or from subsets of the response",
    scale=0.5,
    more="value after the segment less value before it, with the reward as the value after the last segment; or the "
    "segment's Owen value",
)


class Continuations(Supplied):
    """Where continuations are sampled, how many, and how their rewards become gains.

    The value at a cut is the mean reward of its continuations. `own` and `lean` keep the gradient unbiased.

    Args:
        cuts: the tokens before which continuations are sampled.
        count: continuations from each cut.
        mixed: sample only in groups whose rewards are not all equal.
        start: take the mean reward of the group's other responses as the value of the prompt.
        own: count the reward of the response as one more continuation where a segment ends.
        lean: weight of the prompt's value where a segment begins, in continuations; needs `start`.
    """

    gives, fact = "gain", GAIN
    cuts: Cuts
    count: Count
    mixed: bool = False
    start: bool = False
    own: bool = False
    lean: NotNegative = 0.0

    def at(self, rollouts: Rollouts) -> Tensor:
        """[N, T] bool, the tokens before which the engine samples continuations."""
        chosen = self.cuts(rollouts) & rollouts.mask
        if self.mixed:
            chosen = chosen & Groups.of(rollouts.group, rollouts.mask.any(1)).varied(rollouts.reward)[:, None]
        return chosen

    def supply(self, rollouts: Rollouts, sampler: Sampler) -> Tensor:
        cuts = self.at(rollouts)
        return self.gain(rollouts, cuts, sampler.continued(rollouts, cuts, self.count))

    def gain(self, rollouts: Rollouts, cuts: Tensor, value: Tensor) -> Tensor:
        """[N, T] gain of each token's segment, from the mean reward [N, T] of the continuations at the cuts."""
        value, start, count = value.double(), None, self.count
        begins = ends = value
        if self.own:
            ends = (count * value + rollouts.reward.double()[:, None]) / (count + 1)
        if self.start:
            start = others_mean(Groups.of(rollouts.group, rollouts.mask.any(1)), rollouts.reward, 0.0)
            begins = (count * value + self.lean * start[:, None]) / (count + self.lean)
        return gains(cuts, begins, ends, rollouts.reward, start)


class SegmentGain(CreditStage):
    """A_it = gain of the token's segment + the shaping's bonus for the response."""

    reads = {"gain"}
    by: Continuations

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return rollouts.need("gain") + bonus[:, None].to(rollouts.old_logprob.dtype)


class WhitenedGain(SegmentGain):
    """`SegmentGain`, whitened over the batch's tokens whose old probability is below `below`, if given; 0 elsewhere."""

    across_groups = True
    below: Fraction | None = None

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return whiten(super().__call__(rollouts, bonus), improbable(rollouts, self.below))


def improbable(rollouts: Rollouts, below: float | None) -> Tensor:
    """[N, T] bool, the response tokens whose old probability is below `below`; None takes all."""
    return rollouts.mask if below is None else rollouts.mask & (rollouts.old_logprob.exp() < below)
