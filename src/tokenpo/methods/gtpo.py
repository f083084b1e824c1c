"""GTPO and GRPO-S: rewards shaped by entropy, per token and per response."""

from typing import Annotated, Literal

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked
from ..core.ops.group import Groups
from ..core.parts.credit import GroupAdvantage, GroupOverlong, by_group
from ..core.parts.loss import SequenceMean, TokenMean
from ..core.parts.part import CreditStage
from ..core.parts.surrogate import ArithmeticSequence, Clip, FixedBounds, GeometricSequence
from ..core.ranges import NOT_NEGATIVE, NotNegative, Positive, Range, limit
from ..core.types import Rollouts
from .options import GroupPenalty, High, Low, Threshold
from .paper import Paper

PAPER = Paper(
    "GTPO and GRPO-S: Token and Sequence-Level Reward Shaping with Policy Entropy", "2508.04349", "paper", version="v6"
)
FLOOR = 1e-8


def _is_clamp(value: object) -> bool:
    return (
        isinstance(value, (tuple, list))
        and len(value) == 2
        and NOT_NEGATIVE.holds(value[0])
        and limit(value[0]).holds(value[1])
    )


Collection = Annotated[Literal["with_zeros", "own_set", "pooled"], "tokens that mean and deviation are taken over"]
Clamp = Annotated[tuple[float, float], Range("(low, high) with 0 <= low <= high", _is_clamp)]


class PolarTokens(CreditStage):
    """GTPO's token rewards a1 + a2 · share, normalised in the group.

    `whole_batch` compares entropies over the batch; `clamp` bounds them (nats) before they are shared out.
    """

    reads = {"old_entropy"}
    base: NotNegative
    share: NotNegative
    collection: Collection = "with_zeros"
    whole_batch: bool = False
    clamp: Clamp | None = None
    threshold: Threshold = 0.0
    eps: Positive = 1e-6

    @property
    def across_groups(self) -> bool:
        return self.whole_batch

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return self.of(rollouts, bonus) if self.whole_batch else by_group(self.of, rollouts, bonus)

    def of(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        """The advantages [N, T] of whole groups, from rewards and `bonus` [N]."""
        right, mixed = polarity(rollouts, self.threshold)
        groups = Groups.of(rollouts.group, mixed)
        compared = groups.one() if self.whole_batch else groups
        entropy = floored(rollouts, self.clamp)
        everyone = rollouts.mask & mixed[:, None]
        sets = [(everyone & right[:, None], entropy, 1.0), (everyone & ~right[:, None], 1 / entropy, -1.0)]
        shaped = [
            torch.where(alive, self.shaped(compared, alive, x, sign) + bonus[:, None], 0) for alive, x, sign in sets
        ]
        if self.collection == "pooled":
            return self.normalised(groups, sum(shaped, torch.zeros_like(shaped[0])), everyone)
        parts = [
            torch.where(alive, self.normalised(groups, r, everyone if self.collection == "with_zeros" else alive), 0)
            for (alive, _, _), r in zip(sets, shaped, strict=True)
        ]
        return parts[0] + parts[1]

    def shaped(self, groups: Groups, alive: Tensor, x: Tensor, sign: float) -> Tensor:
        """±(a1 + a2 · count · x / Σ x) over the rows of the set alive at each position."""
        x = torch.where(alive, x, 0)
        count = groups.sum(alive.to(x.dtype))
        return sign * (self.base + self.share * count * x / groups.sum(x).clamp(min=FLOOR))

    def normalised(self, groups: Groups, r: Tensor, members: Tensor) -> Tensor:
        """(r − mean) / (std + eps) with mean and deviation of r over `members` of each group."""
        # Measured from the group's smallest value, so that a collection of equal values has a deviation of exactly 0.
        lowest = torch.where(members, r, torch.inf).amin(1)
        lowest = Groups(groups.index, groups.count, members.any(1)).extremes(lowest)[0]
        r = torch.where(members, r - lowest[:, None], 0)
        size = groups.sum(members.sum(1))[:, None]
        mean = groups.sum(r.sum(1))[:, None] / size.clamp(min=1)
        square = torch.where(members, (r - mean).square(), 0).sum(1)
        std = (groups.sum(square)[:, None] / (size - 1).clamp(min=1)).sqrt()
        return torch.where(members, (r - mean) / (std + self.eps), 0)


class PolarSequences(CreditStage):
    """GRPO-S's sequence rewards b1 + b2 · share, normalised over the group; `geometric` means or arithmetic ones."""

    reads = {"old_entropy"}
    base: NotNegative
    share: NotNegative
    geometric: bool = False
    threshold: Threshold = 0.0

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        right, mixed = polarity(rollouts, self.threshold)
        mean = self.mean_entropy(rollouts)
        groups = Groups.of(rollouts.group, mixed)
        winners = Groups(groups.index, groups.count, mixed & right)
        losers = Groups(groups.index, groups.count, mixed & ~right)
        won = self.base + self.share * self.shares(winners, mean)
        lost = -self.base - self.share * self.shares(losers, 1 / mean)
        reward = torch.where(right, won, lost) + bonus
        # Rows outside a mixed group are in no group here, and get 0.
        return GroupAdvantage().of(groups, reward)[:, None].expand(rollouts.mask.shape)

    def mean_entropy(self, rollouts: Rollouts) -> Tensor:
        entropy = floored(rollouts, None)
        if self.geometric:
            return masked.mean(entropy.log(), rollouts.mask, 1).exp()[:, 0]
        return masked.mean(entropy, rollouts.mask, 1)[:, 0].clamp(min=FLOOR)

    def shares(self, members: Groups, x: Tensor) -> Tensor:
        """x over its mean in the set: count · x / Σ x, or its geometric counterpart."""
        count = members.size().clamp(min=1)
        return x / ((members.sum(x.log()) / count).exp() if self.geometric else members.sum(x) / count)


def polarity(rollouts: Rollouts, threshold: float) -> tuple[Tensor, Tensor]:
    """([N] the response is right, [N] its group holds right and wrong ones)."""
    right = rollouts.reward > threshold
    groups = Groups.of(rollouts.group, rollouts.mask.any(1))
    return right, groups.varied(right.to(rollouts.reward.dtype))


def floored(rollouts: Rollouts, clamp: tuple[float, float] | None) -> Tensor:
    """Old entropies [N, T] in nats, kept above 1e-8 so that shares of 1/H exist; float64, as all of this credit is."""
    entropy = rollouts.need("old_entropy").double()
    return (entropy if clamp is None else entropy.clamp(*clamp)).clamp(min=FLOOR)


@PAPER
def gtpo(
    *,
    low: Low = 0.2,
    high: High = 0.28,
    a1: Annotated[NotNegative, "reward of a token for the outcome"] = 1.0,
    a2: Annotated[NotNegative, "mean reward that is shared out by entropy"] = 0.1,
    normalise: Collection = "with_zeros",
    scope: Annotated[Literal["group", "batch"], 'compare entropies over the "group" or the "batch"'] = "group",
    entropy_clamp: Annotated[Clamp | None, "(low, high), bounds of the entropies in nats"] = None,
    threshold: Threshold = 0.0,
    group_overlong: GroupPenalty = False,
) -> Objective:
    """Right tokens earn more where entropy is high, wrong tokens lose more where it is low.

    O⁺ are the d_t right responses of a group that have a token at position t, O⁻ its h_t wrong ones. H is the old
    policy's entropy.

        i in O⁺: r̃_it =  a1 + a2 d_t H_it / Σ_{k∈O⁺} H_kt
        i in O⁻: r̃_it = −a1 − a2 h_t H_it⁻¹ / Σ_{k∈O⁻} H_kt⁻¹
        A_it = (r̃_it − mean r̃) / (std r̃ + 1e-6),   over all tokens of the group, the other class as 0 (`normalise`)
        J = 1/Σ|o_i| Σ_i Σ_t min(r_it A_it, clip(r_it, 1−low, 1+high) A_it)

    Defaults: the paper's, but for the departures.
    Options: normalise="with_zeros" takes, for a token of O⁺, all tokens of the group, those of O⁻ as 0: A stays above
    0. "own_set", the literal reading, takes the tokens of O⁺: their mean A is 0. "pooled" takes all tokens of the
    group. scope="group" follows the formulas; "batch" is what the authors say they run.
    Departures: entropies are not clamped. (The paper clamps them to 0.2 .. 0.28, the numbers of DAPO's clip, perhaps by
    mistake.) Entropies below 1e-8 count as 1e-8. A group with only right or only wrong responses has no gradient. The
    trajectory-based GTPO of 2508.03772 is `gtpo_conflict`.
    Reductions: a2 = 0 is ±a1 rewards normalised over tokens. At every t, the r̃ of O⁺ sum to (a1 + a2) d_t, those of O⁻
    to −(a1 + a2) h_t.
    """
    clamp = None if entropy_clamp is None else (entropy_clamp[0], entropy_clamp[1])
    shaping = (GroupOverlong(threshold=threshold),) if group_overlong else ()
    credit = PolarTokens(a1, a2, normalise, scope == "batch", clamp, threshold)
    return Objective(credit, Clip(FixedBounds(low, high)), TokenMean(), shaping=shaping)


@PAPER
def grpo_s(
    *,
    low: Low = 0.2,
    high: High = 0.28,
    b1: Annotated[NotNegative, "reward for the outcome"] = 1.0,
    b2: Annotated[NotNegative, "mean reward that is shared out by entropy"] = 0.1,
    mean: Annotated[
        Literal["arithmetic", "geometric"], "mean for ratio, entropies and shares; geometric is the appendix's variant"
    ] = "arithmetic",
    threshold: Threshold = 0.0,
    group_overlong: GroupPenalty = False,
) -> Objective:
    """Right responses earn more for a high mean entropy, wrong ones lose more for a low one.

    n and m count the group's right responses O⁺ and wrong ones O⁻. H̄ is a response's mean entropy under the old
    policy.

        i in O⁺: r̂_i =  b1 + b2 n H̄_i / Σ_{k∈O⁺} H̄_k
        i in O⁻: r̂_i = −b1 − b2 m H̄_i⁻¹ / Σ_{k∈O⁻} H̄_k⁻¹
        A_i = (r̂_i − mean_g r̂) / (std_g r̂ + 1e-6),   w_i = mean_t r_it
        J = 1/N Σ_i min(w_i A_i, clip(w_i, 1−low, 1+high) A_i)

    Defaults: the paper's.
    Reductions: b2 = 0 is GRPO on ±1 rewards with the arithmetic ratio.
    """
    geometric = mean == "geometric"
    ratio = GeometricSequence() if geometric else ArithmeticSequence()
    shaping = (GroupOverlong(threshold=threshold),) if group_overlong else ()
    credit = PolarSequences(b1, b2, geometric, threshold)
    return Objective(credit, Clip(FixedBounds(low, high), ratio=ratio), SequenceMean(), shaping=shaping)
