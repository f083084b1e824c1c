"""Importance ratios of the current to the old policy, per token or per response."""

from __future__ import annotations

from torch import Tensor

from ..ops import masked, ratio
from ..types import Batch
from .part import Part
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

    def __call__(self, batch: Batch) -> Tensor:
        return ratio.geometric(self.log(batch), batch.mask)


class GeometricToken(Ratio):
    """sg[s_i] · exp(lp − sg[lp]): the sequence ratio's value with a gradient per token. GSPO-token (2507.18071)."""

    def __call__(self, batch: Batch) -> Tensor:
        lp = batch.policy.logprob
        return ratio.geometric(self.log(batch).detach(), batch.mask) * (lp - lp.detach()).exp()


class ArithmeticSequence(Ratio):
    """w_i = mean_t r_t. GRPO-S (2508.04349)."""

    def __call__(self, batch: Batch) -> Tensor:
        return masked.mean(self.log(batch).exp(), batch.mask, dim=1).expand_as(batch.mask)


class ProductSequence(Ratio):
    """W_i = Π_t r_t, the likelihood ratio of the whole response; its logarithm is bounded to ±20."""

    def __call__(self, batch: Batch) -> Tensor:
        return ratio.log_product(self.log(batch), batch.mask).exp()


class WeightedRatio(Ratio):
    """sg[w] · ratio: a weight inside the minimum and the clip.

    There a large weight can clip the very token that it is meant to strengthen.
    """

    ratio: Ratio
    weight: BatchWeight

    def __call__(self, batch: Batch) -> Tensor:
        return self.weight.of_batch(batch) * self.ratio(batch)
