"""Rollout correction: handles the mismatch ρ = exp(lp_old − lp_roll) between trainer and sampling engine.

A `RolloutCorrection` weights by ρ; a `Rejection` drops tokens or responses that fail a `Criterion`. Both combine with
any method. `methods.extensions` offers them under the names that other frameworks use.
"""

import math
from typing import Annotated

import torch
from torch import Tensor

from ...base.errors import TokenPOError, refuse
from ..ops import masked
from ..ops.ratio import log_product, log_ratio
from ..ranges import AboveZero, Limit, Share, limit
from ..types import Batch, Rollouts
from .loss import Estimator
from .part import Part, Selection, Signal
from .weights import BatchWeight


class RolloutCorrection(BatchWeight):
    """The weight ρ, kept in [floor, cap], without gradient.

    Args:
        sequence: one weight per response, ρ_i = Π_t ρ_it, rather than one per token.
        mask: set a weight outside [floor, cap] to 0 instead of clamping it.
        cap: largest weight, ≥ 1; inf means none.
        floor: smallest weight, in [0, 1].
        geometric: with `sequence`, take the mean of a response's log-ratios in place of their sum.
        current: ρ = exp(lp − lp_roll), with the current policy in place of the old one.
    """

    reads = {"rollout_logprob"}
    corrects_rollout = True
    sequence: bool = False
    mask: bool = False
    cap: Annotated[float, limit(1)] = 2.0
    floor: Share = 0.0
    geometric: bool = False
    current: bool = False

    @property
    def idle_as_sampled(self) -> bool:
        return not self.current

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.geometric and not self.sequence:
            raise TokenPOError("RolloutCorrection: a geometric mean is that of a response: set sequence=True with it")

    @property
    def of_response(self) -> bool:
        return self.sequence

    def of_batch(self, batch: Batch) -> Tensor:
        ours = batch.policy.logprob.detach() if self.current else batch.rollouts.old_logprob
        return self.of(log_ratio(ours, batch.need("rollout_logprob")), batch.mask)

    def of(self, log: Tensor, mask: Tensor) -> Tensor:
        """Weight [N, T] from the log-ratios [N, T]."""
        if self.sequence:
            log = Mean().of(log, mask) if self.geometric else log_product(log, mask)
        weight = log.exp()
        bounded = weight.clamp(self.floor, self.cap)
        return torch.where(bounded == weight, weight, 0.0) if self.mask else bounded


class RolloutMean(Signal):
    """Mean of a correction over the tokens (with `sequence` over the responses) of the rollout batch, [N, T]."""

    reads = {"rollout_logprob"}
    correction: RolloutCorrection

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.correction.current:
            raise TokenPOError("RolloutMean: before the first update there is no other current policy: current=False")

    def __call__(self, rollouts: Rollouts) -> Tensor:
        mask = rollouts.mask
        weight = self.correction.of(log_ratio(rollouts.old_logprob, rollouts.need("rollout_logprob")), mask)
        counted = mask
        if self.correction.sequence:  # one token stands for its response
            counted = mask & (mask.cumsum(1) == 1)
        return masked.mean(weight, counted).expand(mask.shape)


class Level(Part):
    """Whether a criterion judges single tokens or whole responses."""

    def of(self, x: Tensor, mask: Tensor) -> Tensor:
        """The statistic [N, T] to compare with the bounds, from one number per token [N, T]."""
        return x

    def verdict(self, inside: Tensor, mask: Tensor) -> Tensor:
        """[N, T] bool, the tokens to keep, from `inside` [N, T]: where the statistic is inside the bounds."""
        return inside


class EachToken(Level):
    """Judges each token by its own number."""


class Total(Level):
    """Judges a response by the sum over its tokens; for log ρ this is the log-likelihood ratio of the response."""

    of_response = True

    def of(self, x: Tensor, mask: Tensor) -> Tensor:
        return masked.keep(x, mask).sum(1, keepdim=True).expand_as(x)


class Mean(Level):
    """Judges a response by the mean over its tokens; for log ρ this is the log of the ratios' geometric mean."""

    of_response = True

    def of(self, x: Tensor, mask: Tensor) -> Tensor:
        return masked.mean(x, mask, dim=1).expand_as(x)


class Every(Level):
    """Keeps a response only if every one of its tokens is inside the bounds."""

    of_response = True

    def verdict(self, inside: Tensor, mask: Tensor) -> Tensor:
        return (inside | ~mask).all(1, keepdim=True).expand_as(inside)


class Distance(Part):
    """The number of a token by its probability p under the sampler and q under the policy."""

    def __call__(self, p: Tensor, q: Tensor) -> Tensor:
        raise NotImplementedError


class TotalVariation(Distance):
    """|p − q|."""

    def __call__(self, p: Tensor, q: Tensor) -> Tensor:
        return (p - q).abs()


class BinaryKl(Distance):
    """KL, nats, of "this token or another" under the sampler to the policy; p and q within [1e-6, 1 − 1e-6]."""

    def __call__(self, p: Tensor, q: Tensor) -> Tensor:
        p, q = (x.double().clamp(1e-6, 1 - 1e-6) for x in (p, q))
        divergence = p * (p / q).log() + (1 - p) * ((1 - p).log() - (1 - q).log())
        return divergence.clamp(min=0)  # rounding may have left it below


class Criterion(Part):
    """Keeps tokens or responses whose statistic lies in [low, high].

    Args:
        over: judge tokens, or a statistic of responses.
        low: lower bound, ≥ 0.
        high: upper bound; inf means none.
        of: the number of a token: a divergence of log ρ (`K2`, `K3`), in nats, or a `Distance`; None takes ρ itself.
    """

    over: Level = EachToken()
    low: Limit = 0.0
    high: Limit = math.inf
    of: Estimator | Distance | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(high=limit(self.low).because("the lower bound"))

    def __call__(self, log: Tensor, mask: Tensor, sampled: Tensor) -> Tensor:
        """[N, T] bool, the tokens to keep, from the log-ratios [N, T] and the sampler's log-probabilities [N, T]."""
        # ρ is compared by its logarithm, as the exponential of a sum may overflow.
        low, high = (_log(self.low), _log(self.high)) if self.of is None else (self.low, self.high)
        if isinstance(self.of, Distance):
            x = self.of(sampled.exp(), (sampled + log).exp())
        else:
            x = log if self.of is None else self.of(log)
        x = self.over.of(x, mask)
        return self.over.verdict((x >= low) & (x <= high), mask)


class Rejection(BatchWeight):
    """A weight of 1 on tokens that meet all criteria, 0 on the others.

    Args:
        criteria: one or more.
        current: judge by exp(lp − lp_roll), with the current policy in place of the old one.
        leaves: leave rejected tokens out of the denominators too; otherwise they count as zeros.
    """

    reads = {"rollout_logprob"}
    criteria: tuple[Criterion, ...]
    current: bool = False
    leaves: bool = False

    @property
    def idle_as_sampled(self) -> bool:
        return not self.current

    def __post_init__(self) -> None:
        super().__post_init__()
        mixed = len({isinstance(x.over, EachToken) for x in self.criteria}) > 1
        faults = [
            not self.criteria and "Rejection: give a criterion at least",
            self.leaves
            and self.current
            and "Rejection: denominators are counted before the policy moves: leaves=True goes with current=False",
            self.leaves
            and mixed
            and "Rejection: once rejected tokens have left, their response is another one: leaves=True goes with "
            "criteria of tokens or with criteria of responses, not with both",
        ]
        refuse(faults, TokenPOError)

    @property
    def of_tokens(self) -> bool:
        """Whether it can reject a part of a response."""
        return any(isinstance(x.over, EachToken) for x in self.criteria)

    def of_batch(self, batch: Batch) -> Tensor:
        kept = self.kept_of(batch)
        if self.leaves and (batch.mask & ~kept).any():
            raise TokenPOError(
                f"{self} leaves the denominators, but what it rejects is still in the mask: give phase two and its "
                "Totals what objective.counted(rollouts) returns, as Learner.begin does"
            )
        return kept.to(batch.policy.logprob.dtype)

    def kept_of(self, batch: Batch) -> Tensor:
        """[N, T] bool, the response tokens that meet all criteria."""
        ours = batch.policy.logprob.detach() if self.current else batch.rollouts.old_logprob
        return self._kept(ours, batch.need("rollout_logprob"), batch.mask)

    def _kept(self, ours: Tensor, sampled: Tensor, mask: Tensor) -> Tensor:
        kept, log = mask, log_ratio(ours, sampled)
        for criterion in self.criteria:
            kept = kept & criterion(log, mask, sampled)
        return kept

    def counted(self, rollouts: Rollouts) -> Tensor:
        """[N, T] bool, the response tokens that the denominators count; for `leaves` only."""
        return self._kept(rollouts.old_logprob, rollouts.need("rollout_logprob"), rollouts.mask)


class Strayed(Selection):
    """Tokens with A < 0 in responses with mean_t(lp_b − lp) > delta; DeepSeek-V3.2's mask (2512.02556) drops them.

    Args:
        delta: largest mean log-ratio, nats, > 0.
        sampler: take lp_b from the sampling engine rather than from the old policy.
    """

    of_response = True
    delta: AboveZero
    sampler: bool = False

    @property
    def reads(self) -> set[str]:
        return {"rollout_logprob"} if self.sampler else set()

    @property
    def idle_on_policy(self) -> bool:
        return not self.sampler

    def __call__(self, batch: Batch) -> Tensor:
        before = batch.need("rollout_logprob") if self.sampler else batch.rollouts.old_logprob
        far = masked.mean(log_ratio(before, batch.policy.logprob.detach()), batch.mask, dim=1) > self.delta
        return (batch.credit.advantage < 0) & far


def _log(x: float) -> float:
    return math.log(x) if x else -math.inf
