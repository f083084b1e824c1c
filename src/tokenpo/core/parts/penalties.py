"""Penalties: divergences from other policies, added to the loss of a token."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from ..ops import kl
from ..ops.ratio import log_ratio
from ..ranges import AboveZero, Finite, NotNegative
from ..types import Batch, Trust
from .part import BatchSignal, MemorySignal, Part, Penalty, Signal
from .ratio import Ratio, TokenRatio
from .weights import BatchWeight


class Estimator(Part):
    """A divergence of one token, nats, from its log-ratio x.

    Attributes:
        stationary: its gradient at x = 0 is 0.
    """

    stationary = cast(Any, True)

    def __call__(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class K1(Estimator):
    """−x."""

    stationary = False

    def __call__(self, x: Tensor) -> Tensor:
        return -x


class K2(Estimator):
    """x² / 2."""

    def __call__(self, x: Tensor) -> Tensor:
        return kl.k2(x)


class K3(Estimator):
    """eˣ − 1 − x."""

    def __call__(self, x: Tensor) -> Tensor:
        return kl.k3(x)


class K3Within(Estimator):
    """k3 of x bounded to ±reach, at most `most`; both in nats, and flat where either binds."""

    reach: AboveZero
    most: AboveZero

    def __call__(self, x: Tensor) -> Tensor:
        return kl.k3(x.clamp(-self.reach, self.reach)).clamp(max=self.most)


class AbsoluteLogRatio(Estimator):
    """|x|, without gradient within ±1e-5, where x is rounding."""

    def __call__(self, x: Tensor) -> Tensor:
        return kl.absolute(x)


class StraightThrough(Estimator):
    """The value of one estimator with the gradient of another.

    On samples of the policy the expected gradient of k2 is the divergence's; that of k1 is 0, and k3's is biased.
    """

    value: Estimator = K3()
    gradient: Estimator = K2()

    @property
    def stationary(self) -> bool:
        return self.gradient.stationary

    def __call__(self, x: Tensor) -> Tensor:
        learnt = self.gradient(x)
        return learnt + (self.value(x) - learnt).detach()


class Divergence(Penalty):
    """beta · estimator(log q − lp), q the one policy that it reads.

    Args:
        beta: coefficient, ≥ 0.
        estimator: k3 in most papers.
        scale: multiply the divergence of a token by this weight.
    """

    beta: NotNegative
    estimator: Estimator = K3()
    scale: BatchWeight | None = None

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        divergence = self.beta * self.estimator(self.log_ratio(batch))
        return divergence if self.scale is None else self.scale.of_batch(batch) * divergence

    def log_ratio(self, batch: Batch) -> Tensor:
        """x [N, T], of which the estimator makes the divergence."""
        (other,) = self.reads
        return log_ratio(batch.need(other), batch.policy.logprob)


class ReferenceKl(Divergence):
    """beta · estimator(lp_ref − lp): GRPO's divergence from the reference policy.

    Args:
        beta: coefficient, ≥ 0.
        estimator: k3 in the papers.
        scale: multiply the divergence of a token by this weight.
        inside: multiply the ratio π_ref / π by this weight, > 0, before the estimator.
    """

    reads = {"ref_logprob"}
    inside: BatchWeight | None = None

    def log_ratio(self, batch: Batch) -> Tensor:
        x = super().log_ratio(batch)
        return x if self.inside is None else x + self.inside.of_batch(batch).log()


class Reweighted(Penalty):
    """ratio · penalty, with gradient through both; DeepSeek-V3.2 (2512.02556), "Unbiased KL Estimate".

    With the token's ratio, the mean of k1 or k3 over tokens of the old policy has value and gradient of the current
    policy's divergence from the reference.
    """

    penalty: Penalty
    ratio: Ratio = TokenRatio()

    @property
    def follows_advantage(self) -> bool:
        return self.penalty.follows_advantage

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        return self.ratio(batch) * self.penalty(batch, trust)


class EntropyBonus(Penalty):
    """−coef · H of the current policy, with gradient.

    Args:
        coef: coefficient, or the memory that sets it; below 0 entropy costs.
    """

    reads = {"entropy"}
    entropy_gradient = True
    coef: Finite | MemorySignal

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        coef = batch.signal(self.coef) if isinstance(self.coef, MemorySignal) else self.coef
        return -coef * batch.need("entropy")


class Anchor(Penalty):
    """coef · strength · |lp − lp_old|: holds tokens at the old policy; no gradient where the two nearly agree.

    Args:
        coef: coefficient, ≥ 0.
        strength: a signal ≥ 0; 0 leaves a token free.
    """

    idle_on_policy = True
    coef: NotNegative
    strength: Signal | BatchSignal

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        distance = kl.absolute(log_ratio(batch.policy.logprob, batch.rollouts.old_logprob))
        return self.coef * batch.signal(self.strength).to(distance.dtype) * distance
