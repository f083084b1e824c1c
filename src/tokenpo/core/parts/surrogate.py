"""Surrogates: an importance ratio, per token or per response, inside a trust region."""

import math

import torch
from torch import Tensor

from ..ops import masked, ratio
from ..ops.ratio import pessimistic
from ..ranges import AboveOne, Limit, Share
from ..types import Batch, Trust
from .part import Part, Selection, SurrogateStage
from .weights import BatchWeight


class Ratio(Part):
    """An importance ratio, with gradient through the log-probability."""

    def __call__(self, batch: Batch) -> Tensor:
        """[N, T]."""
        raise NotImplementedError

    @staticmethod
    def log(batch: Batch) -> Tensor:
        """lp − lp_old [N, T], nats, bounded to ±20."""
        return ratio.log_ratio(batch.policy.logprob, batch.rollouts.old_logprob)


class TokenRatio(Ratio):
    """r_t = exp(lp − lp_old)."""

    def __call__(self, batch: Batch) -> Tensor:
        return self.log(batch).exp()


class RolloutRatio(Ratio):
    """exp(lp − lp_roll): the ratio to the policy that sampled, by the log-probabilities of the sampling engine."""

    reads = {"rollout_logprob"}
    corrects_rollout = True

    def __call__(self, batch: Batch) -> Tensor:
        return ratio.log_ratio(batch.policy.logprob, batch.need("rollout_logprob")).exp()


class GeometricSequence(Ratio):
    """s_i = exp(mean_t log r_t). GSPO (2507.18071, eq. 7)."""

    of_response = True

    def __call__(self, batch: Batch) -> Tensor:
        return ratio.geometric(self.log(batch), batch.mask)


class GeometricToken(Ratio):
    """sg[s_i] · exp(lp − sg[lp]): the sequence ratio's value with a gradient per token. GSPO-token (2507.18071)."""

    of_response = True

    def __call__(self, batch: Batch) -> Tensor:
        lp = batch.policy.logprob
        return ratio.geometric(self.log(batch).detach(), batch.mask) * (lp - lp.detach()).exp()


class ArithmeticSequence(Ratio):
    """w_i = mean_t r_t. GRPO-S (2508.04349)."""

    of_response = True

    def __call__(self, batch: Batch) -> Tensor:
        return masked.mean(self.log(batch).exp(), batch.mask, dim=1).expand_as(batch.mask)


class ProductSequence(Ratio):
    """W_i = Π_t r_t, the likelihood ratio of the whole response; its logarithm is bounded to ±20."""

    of_response = True

    def __call__(self, batch: Batch) -> Tensor:
        return ratio.log_product(self.log(batch), batch.mask).exp()


class WeightedRatio(Ratio):
    """sg[w] · ratio: a weight inside the clip, where a large one can clip the very token that it should strengthen."""

    ratio: Ratio
    weight: BatchWeight

    def __call__(self, batch: Batch) -> Tensor:
        return self.weight.of_batch(batch) * self.ratio(batch)


class Bounds(Part):
    """The interval of ratios that the trust region allows."""

    def __call__(self, batch: Batch) -> tuple[Tensor | float, Tensor | float]:
        """(lower, upper), each a number or [N, T]; 1 lies between them."""
        raise NotImplementedError


class FixedBounds(Bounds):
    """The interval (1 − low, 1 + high).

    Args:
        low: in [0, 1]; 1 means no lower bound.
        high: ≥ 0; inf means no upper bound.
    """

    low: Share
    high: Limit

    def __call__(self, batch: Batch) -> tuple[float, float]:
        return 1 - self.low, 1 + self.high


class SelectedBounds(Bounds):
    """One interval for the selected tokens, another for the rest."""

    selection: Selection
    inside: FixedBounds
    outside: FixedBounds

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        chosen, like = self.selection(batch), batch.policy.logprob
        pairs = zip(self.inside(batch), self.outside(batch), strict=True)
        lower, upper = (torch.where(chosen, like.new_tensor(x), like.new_tensor(y)) for x, y in pairs)
        return lower, upper


class Clip(SurrogateStage):
    """min(r A, clip(r, bounds) A). Where A < 0 it is at least `dual` · A (dual clip); None leaves that bound out."""

    bounds: Bounds
    ratio: Ratio = TokenRatio()
    dual: AboveOne | None = None

    def __call__(self, batch: Batch) -> Trust:
        ratio = self.ratio(batch)
        lower, upper = self.bounds(batch)
        value, clipped = pessimistic(ratio, batch.credit.advantage, lower, upper, self.dual)
        return Trust(value, ratio, lower, upper, clipped)


class Unclipped(SurrogateStage):
    """r A, without a trust region."""

    ratio: Ratio = TokenRatio()

    def __call__(self, batch: Batch) -> Trust:
        ratio = self.ratio(batch)
        return Trust(ratio * batch.credit.advantage, ratio, 0.0, math.inf, nowhere(batch))


class Region(Part):
    """A trust region that is not an interval of the ratio."""

    def __call__(self, batch: Batch) -> Tensor:
        """[N, T] bool, true inside."""
        raise NotImplementedError


class DetachedClip(SurrogateStage):
    """sg[clip(r, bounds)] · A · lp: the clip bounds the weight of a token's gradient and never sets it to 0.

    Args:
        bounds: interval that the weight is clamped to, for either sign of the advantage.
        ratio: the importance weight.
        region: tokens outside it get no gradient; None means every token gets one.
    """

    own_slope = True
    bounds: Bounds
    ratio: Ratio = TokenRatio()
    region: Region | None = None

    def __call__(self, batch: Batch) -> Trust:
        ratio = self.ratio(batch)
        lower, upper = self.bounds(batch)
        advantage = batch.credit.advantage
        weight = ratio.detach().clamp(_like(lower, ratio), _like(upper, ratio))
        value = weight * advantage * batch.policy.logprob
        if self.region is None:
            return Trust(value, ratio, lower, upper, nowhere(batch))
        inside = self.region(batch)
        return Trust(masked.keep(value, inside), ratio, lower, upper, ~inside & advantage.bool())


class LogLikelihood(SurrogateStage):
    """A · lp: the plain policy gradient. The ratio is only reported; nothing corrects for off-policy tokens."""

    own_slope = True
    assumes_on_policy = True

    def __call__(self, batch: Batch) -> Trust:
        value = batch.credit.advantage * batch.policy.logprob
        return Trust(value, TokenRatio()(batch).detach(), 0.0, math.inf, nowhere(batch))


def nowhere(batch: Batch) -> Tensor:
    """[N, T] bool, false everywhere: no token is clipped."""
    return batch.mask.new_zeros(()).expand_as(batch.mask)


def _like(bound: Tensor | float, like: Tensor) -> Tensor:
    return bound if torch.is_tensor(bound) else like.new_tensor(bound)
