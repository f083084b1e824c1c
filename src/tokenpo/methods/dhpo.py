"""DHPO: the token ratio and the sequence ratio in one objective, each in its own trust region.

    s_it = sg[s_i] · exp(lp − sg[lp]),   s_i = exp(mean_t log r_it)
    mix_of_mins    J_it = a_it min(r A, clip(r, 1−low, 1+high) A)
                          + (1 − a_it) min(s A, clip(s, 1−sequence_low, 1+sequence_high) A)
    min_of_mixes   J_it = min(m A, m' A),   m = a r + (1 − a) s,   m' the same of the clipped ratios
    J = 1/N Σ_i 1/|o_i| Σ_t J_it
    average: a_it = 1/2;   entropy: a_it = H_old,it / max_t H_old,it, 1/2 where that maximum is 0

From the abstract: the two ratios are mixed by weights, by average or guided by entropy, and each is constrained in its
own region first, so that an outlier of one cannot dominate. All else is our reading, and all defaults are ours: GRPO's
clip with DAPO's upper side for tokens, GSPO's clip for responses, averaging, and mix_of_mins, as with min_of_mixes an
unclipped outlier of one branch can hold the minimum.
Options: mixing="entropy" trusts the token ratio where the old policy hesitated; direction and scale are our guess.
Reductions: a = 1 is GRPO, a = 0 is GSPO-token. At lp = lp_old the gradient is theirs for any a. The two forms agree
where both ratios are on the same side of 1 and of their bounds.
"""

from typing import Annotated, Literal

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.parts import Clip, FixedBounds, GeometricToken, Part, SequenceMean, SurrogateStage, TokenRatio
from ..core.parts.credit import GroupAdvantage
from ..core.ranges import Limit, Share
from ..core.types import Batch, Trust
from .paper import Paper


class EvenShare(Part):
    """The share of the token ratio in a token's objective [N, T]: 1/2."""

    def __call__(self, batch: Batch) -> Tensor:
        return torch.full_like(batch.policy.logprob, 0.5)


class EntropyShare(Part):
    """Its share [N, T] without gradient: H_old over its maximum in the response; 1/2 if that maximum is 0."""

    reads = {"old_entropy"}

    def __call__(self, batch: Batch) -> Tensor:
        entropy = batch.need("old_entropy").clamp(min=0)  # 0 on padding; rounding may have left it below
        most = entropy.amax(1, keepdim=True)
        return torch.where(most > 0, entropy / most, 0.5)


class Mixture(SurrogateStage):
    """The token ratio r and the response's ratio s in one objective; `share` is the share of r."""

    own_slope = True
    token: FixedBounds
    sequence: FixedBounds
    share: EvenShare | EntropyShare

    @staticmethod
    def bound(a: Tensor, one: Tensor | float, other: Tensor | float) -> Tensor:
        """a · one + (1 − a) · other, where a bound without a share may be infinite."""
        return torch.where(a > 0, a * one, 0.0) + torch.where(a < 1, (1 - a) * other, 0.0)


class MixOfMins(Mixture):
    """a · min(r A, clip(r) A) + (1 − a) · min(s A, clip(s) A): each branch has its own minimum."""

    def __call__(self, batch: Batch) -> Trust:
        a = self.share(batch)
        one, other = Clip(self.token)(batch), Clip(self.sequence, GeometricToken())(batch)
        return Trust(
            a * one.value + (1 - a) * other.value,
            a * one.ratio + (1 - a) * other.ratio,
            a * one.lower + (1 - a) * other.lower,
            self.bound(a, one.upper, other.upper),
            (one.clipped | (a == 0)) & (other.clipped | (a == 1)),
        )


class MinOfMixes(Mixture):
    """min(m A, m' A) of the mixed ratios m and the mixed clipped ratios m'."""

    def __call__(self, batch: Batch) -> Trust:
        a, advantage = self.share(batch), batch.credit.advantage
        r, s = TokenRatio()(batch), GeometricToken()(batch)
        (low, high), (sequence_low, sequence_high) = self.token(batch), self.sequence(batch)
        inside_r, inside_s = r.clamp(low, high), s.clamp(sequence_low, sequence_high)
        free, held = a * r + (1 - a) * s, a * inside_r + (1 - a) * inside_s
        binds = held * advantage < free * advantage
        still = ((inside_r != r) | (a == 0)) & ((inside_s != s) | (a == 1))
        return Trust(
            torch.where(binds, held, free) * advantage,
            free,
            a * low + (1 - a) * sequence_low,
            self.bound(a, high, sequence_high),
            binds & still,
        )


@Paper(
    "Orchestrating Tokens and Sequences: Dynamic Hybrid Policy Optimization for RLVR",
    "2601.05607",
    "reconstructed",
    "only the abstract could be read: mixture, weights, clips and denominator are ours",
)
def dhpo(
    *,
    mixing: Annotated[Literal["average", "entropy"], "half and half, or by the old policy's entropy"] = "average",
    form: Annotated[
        Literal["mix_of_mins", "min_of_mixes"], "mix the clipped objectives, or clip the mixture"
    ] = "mix_of_mins",
    low: Annotated[Share, "clip of the token ratio below"] = 0.2,
    high: Annotated[Limit, "clip of the token ratio above"] = 0.28,
    sequence_low: Annotated[Share, "clip of the sequence ratio below"] = 3e-4,
    sequence_high: Annotated[Limit, "clip of the sequence ratio above"] = 4e-4,
) -> Objective:
    """Clips the token's ratio and the response's ratio separately and mixes them."""
    mixture = {"mix_of_mins": MixOfMins, "min_of_mixes": MinOfMixes}[form]
    share = {"average": EvenShare(), "entropy": EntropyShare()}[mixing]
    bounds = FixedBounds(low, high), FixedBounds(sequence_low, sequence_high)
    return Objective(GroupAdvantage(), mixture(*bounds, share), SequenceMean())
