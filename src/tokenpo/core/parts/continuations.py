"""Credit from continuations: drawn from the middle of a response, their rewards give its value up to there.

A part says where an engine draws them and how many. The engine samples and scores them and fills in `Rollouts.gain`,
what each segment added to the reward, which the credit reads.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..ops.group import Groups, others_mean
from ..ops.masked import whiten
from ..ops.turns import gains
from ..ranges import Count, Fraction, NotNegative
from ..types import Rollouts
from .part import CreditStage, Part


class Cuts(Part):
    """Where responses are cut."""

    def __call__(self, rollouts: Rollouts) -> Tensor:
        """[N, T] bool, true at the first token of a segment; padding may hold anything."""
        raise NotImplementedError


class EveryTokens(Cuts):
    """At the first token and `every` tokens further on."""

    every: Count

    def __call__(self, rollouts: Rollouts) -> Tensor:
        place = torch.arange(rollouts.mask.shape[1], device=rollouts.mask.device)
        return (place % self.every == 0).expand(rollouts.mask.shape)


class BehindToken(Cuts):
    """At the first token, and behind each token with this id: a newline's, where steps are lines."""

    reads = {"token_ids"}
    token: int

    def __call__(self, rollouts: Rollouts) -> Tensor:
        matches = rollouts.need("token_ids") == self.token
        return torch.cat([torch.ones_like(matches[:, :1]), matches[:, :-1]], 1)


class Improbable(Cuts):
    """At the 1st, (1 + interval)-th, ... of the tokens whose old probability is below `below`."""

    interval: Count
    below: Fraction

    def __call__(self, rollouts: Rollouts) -> Tensor:
        rare = improbable(rollouts, self.below)
        return rare & ((rare.cumsum(1) - 1) % self.interval == 0)


class EqualEntropy(Cuts):
    """`count` cuts into pieces of equal entropy: cut k stands at the first token before which k/(count + 1) of the sum
    of the old entropies lies."""

    reads = {"old_entropy"}
    count: Count

    def __call__(self, rollouts: Rollouts) -> Tensor:
        entropy = torch.where(rollouts.mask, rollouts.need("old_entropy").clamp(min=0), 0.0).double()
        before = entropy.cumsum(1) - entropy
        pieces = (before * (self.count + 1) / entropy.sum(1, keepdim=True).clamp(min=1e-300)).floor()
        pieces = pieces.clamp(max=self.count)
        return torch.cat([torch.zeros_like(pieces[:, :1]), pieces.diff(dim=1)], 1) > 0


class Continuations(Part):
    """Where continuations are drawn, how many, and how their rewards become gains.

    The value at a cut is their mean reward. `own` and `lean` are unbiased and cost nothing: the response is one more
    continuation for the segment that ends at a cut, and the value before a segment may lean on anything known before.

    Args:
        cuts: where.
        count: continuations from each cut.
        mixed: draw only in groups whose rewards are not all equal.
        start: the value of the prompt is the mean reward of the group's others; without it, only a cut at the first
            token gives one.
        own: the reward of the response counts as one more continuation where a segment ends.
        lean: number of continuations that the value of the prompt counts for where a segment begins; needs `start`.
    """

    cuts: Cuts
    count: Count
    mixed: bool = False
    start: bool = False
    own: bool = False
    lean: NotNegative = 0.0

    def at(self, rollouts: Rollouts) -> Tensor:
        """[N, T] bool, the tokens before which continuations are to be drawn."""
        chosen = self.cuts(rollouts) & rollouts.mask
        if self.mixed:
            chosen = chosen & Groups.of(rollouts.group, rollouts.mask.any(1)).varied(rollouts.reward)[:, None]
        return chosen

    def gain(self, rollouts: Rollouts, cuts: Tensor, value: Tensor) -> Tensor:
        """[N, T] what the token's segment added, from the mean reward [N, T] of the continuations at the cuts."""
        value, start, count = value.double(), None, self.count
        begins = ends = value
        if self.own:
            ends = (count * value + rollouts.reward.double()[:, None]) / (count + 1)
        if self.start:
            start = others_mean(Groups.of(rollouts.group, rollouts.mask.any(1)), rollouts.reward, 0.0)
            begins = (count * value + self.lean * start[:, None]) / (count + self.lean)
        return gains(cuts, begins, ends, rollouts.reward, start)


class SegmentGain(CreditStage):
    """A_it = gain of the token's segment, plus the shaping's bonus of the response.

    Args:
        by: where the engine draws continuations.
    """

    reads = {"gain"}
    by: Continuations

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return rollouts.need("gain") + bonus[:, None].to(rollouts.old_logprob.dtype)


class WhitenedGain(SegmentGain):
    """`SegmentGain`, whitened over the tokens of the batch.

    Args:
        below: whiten over tokens whose old probability is below this, and give the others 0; None takes all.
    """

    across_groups = True
    below: Fraction | None = None

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return whiten(super().__call__(rollouts, bonus), improbable(rollouts, self.below))


def improbable(rollouts: Rollouts, below: float | None) -> Tensor:
    """[N, T] bool, the response tokens whose old probability is below `below`; all of them for None."""
    return rollouts.mask if below is None else rollouts.mask & (rollouts.old_logprob.exp() < below)
