"""Credit from continuations: endings sampled from the middle of a response, whose rewards estimate its value there.

`Continuations` says where an engine samples them and how many, and computes `gain`, the change in value over each
segment, from their rewards; the credit reads it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..facts import Fact
from ..ops.group import Groups, others_mean
from ..ops.masked import whiten
from ..ops.turns import gains
from ..ranges import Count, Fraction, NotNegative
from ..types import Rollouts
from .part import CreditStage, Part, Sampler, Supplied


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
    """`count` cuts that divide the sum of the response's old entropies into equal pieces.

    Cut k stands at the first token before which k/(count + 1) of that sum has been reached.
    """

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

    The value at a cut is the mean reward of its continuations. `own` and `lean` need no further samples and keep the
    gradient unbiased: the response itself is one more continuation for the segment that ends at a cut, and the value
    before a segment may use anything known before that segment.

    Args:
        cuts: the tokens before which continuations are sampled.
        count: continuations from each cut.
        mixed: sample only in groups whose rewards are not all equal.
        start: take the mean reward of the group's other responses as the value of the prompt. Without it the prompt has
            a value only if there is a cut at the first token.
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
        """[N, T] gain of each token's segment.

        Args:
            cuts: [N, T] bool, as from `at`.
            value: [N, T] mean reward of the continuations at the cuts.
        """
        value, start, count = value.double(), None, self.count
        begins = ends = value
        if self.own:
            ends = (count * value + rollouts.reward.double()[:, None]) / (count + 1)
        if self.start:
            start = others_mean(Groups.of(rollouts.group, rollouts.mask.any(1)), rollouts.reward, 0.0)
            begins = (count * value + self.lean * start[:, None]) / (count + self.lean)
        return gains(cuts, begins, ends, rollouts.reward, start)


class SegmentGain(CreditStage):
    """A_it = gain of the token's segment + the shaping's bonus for the response.

    Args:
        by: where the engine samples continuations.
    """

    reads = {"gain"}
    by: Continuations

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return rollouts.need("gain") + bonus[:, None].to(rollouts.old_logprob.dtype)


class WhitenedGain(SegmentGain):
    """`SegmentGain`, whitened over the tokens of the batch.

    Args:
        below: whiten over the tokens whose old probability is below this, and give the others 0; None takes all tokens.
    """

    across_groups = True
    below: Fraction | None = None

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        return whiten(super().__call__(rollouts, bonus), improbable(rollouts, self.below))


def improbable(rollouts: Rollouts, below: float | None) -> Tensor:
    """[N, T] bool, the response tokens whose old probability is below `below`; None takes all."""
    return rollouts.mask if below is None else rollouts.mask & (rollouts.old_logprob.exp() < below)
