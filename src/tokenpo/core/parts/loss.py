"""The rest of a token's loss: penalties, and the coefficients that sum token losses to one number.

Penalties are divergences from another policy or entropy bonuses. The denominators of coefficients are passed in, so
any split of a step adds up.
"""

from typing import Any, cast

from torch import Tensor

from ..ops.group import Groups
from ..ops.ratio import absolute, k2, k3, log_ratio
from ..ranges import AboveZero, Finite, NotNegative, Positive
from ..types import Batch, Rollouts, Totals, Trust
from .part import Aggregate, BatchSignal, MemorySignal, Part, Penalty, Signal
from .surrogate import Ratio, TokenRatio
from .weights import BatchWeight


class Estimator(Part):
    """Estimates a divergence, nats, from the log-ratio x of one sampled token; `stationary` if flat at x = 0."""

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
        return k2(x)


class K3(Estimator):
    """eˣ − 1 − x."""

    def __call__(self, x: Tensor) -> Tensor:
        return k3(x)


class K3Within(Estimator):
    """min(k3(clip(x, ±reach)), most), both bounds in nats; the gradient is 0 where either bound is reached."""

    reach: AboveZero
    most: AboveZero

    def __call__(self, x: Tensor) -> Tensor:
        return k3(x.clamp(-self.reach, self.reach)).clamp(max=self.most)


class AbsoluteLogRatio(Estimator):
    """|x|; no gradient within ±1e-5, where x is only rounding."""

    def __call__(self, x: Tensor) -> Tensor:
        return absolute(x)


class StraightThrough(Estimator):
    """The value of one estimator with the gradient of another; on policy k2's is unbiased, k1's 0 and k3's biased."""

    value: Estimator = K3()
    gradient: Estimator = K2()

    @property
    def stationary(self) -> bool:
        return self.gradient.stationary

    def __call__(self, x: Tensor) -> Tensor:
        differentiated = self.gradient(x)
        return differentiated + (self.value(x) - differentiated).detach()


class Divergence(Penalty):
    """beta · estimator(log q − lp), where log q is the single input named in `reads`.

    Args:
        beta: coefficient, ≥ 0.
        estimator: k3 in most papers.
        scale: weight that multiplies a token's divergence.
    """

    beta: NotNegative
    estimator: Estimator = K3()
    scale: BatchWeight | None = None

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        divergence = self.beta * self.estimator(self.log_ratio(batch))
        return divergence if self.scale is None else self.scale.of_batch(batch) * divergence

    def log_ratio(self, batch: Batch) -> Tensor:
        """x [N, T], the estimator's argument."""
        (other,) = self.reads
        return log_ratio(batch.need(other), batch.policy.logprob)


class ReferenceKl(Divergence):
    """beta · estimator(lp_ref − lp): GRPO's divergence from the reference policy.

    Args:
        beta, estimator, scale: as in `Divergence`.
        inside: weight > 0 that multiplies the ratio π_ref / π before the estimator.
    """

    reads = {"ref_logprob"}
    inside: BatchWeight | None = None

    def log_ratio(self, batch: Batch) -> Tensor:
        x = super().log_ratio(batch)
        return x if self.inside is None else x + self.inside.of_batch(batch).log()


class Reweighted(Penalty):
    """ratio · penalty, with gradient through both: DeepSeek-V3.2's unbiased KL estimate (2512.02556)."""

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
        coef: coefficient, or the memory that sets it; a negative one penalises entropy.
    """

    reads = {"entropy"}
    entropy_gradient = True
    coef: Finite | MemorySignal

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        coef = batch.signal(self.coef) if isinstance(self.coef, MemorySignal) else self.coef
        return -coef * batch.need("entropy")


class Anchor(Penalty):
    """coef · strength · |lp − lp_old|: holds tokens near the old policy; no gradient where the two agree to 1e-5 nats.

    Args:
        coef: coefficient, ≥ 0.
        strength: a signal ≥ 0; 0 leaves a token free.
    """

    idle_on_policy = True
    coef: NotNegative
    strength: Signal | BatchSignal

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        distance = absolute(log_ratio(batch.policy.logprob, batch.rollouts.old_logprob))
        return self.coef * batch.signal(self.strength).to(distance.dtype) * distance


class TokenMean(Aggregate):
    """Every token counts alike: 1 / tokens of the step. DAPO."""

    def __call__(self, mask: Tensor, totals: Totals) -> float:
        return 1.0 / max(totals.tokens, 1)  # there are 0 tokens if all were rejected


class SequenceMean(Aggregate):
    """Every response counts alike, and so do the tokens of a response: 1 / (|o_i| · sequences of the step). GRPO."""

    def __call__(self, mask: Tensor, totals: Totals) -> Tensor:
        length = mask.sum(1, keepdim=True).clamp(min=1)
        return 1.0 / (length.double() * max(totals.sequences, 1))


class ConstantLength(Aggregate):
    """1 / (length · sequences): no response is favoured for its length. Dr. GRPO.

    Args:
        length: the constant, tokens, > 0; None takes the step's `Totals.length`.
    """

    length: Positive | None = None

    def __call__(self, mask: Tensor, totals: Totals) -> float:
        return 1.0 / ((totals.length if self.length is None else self.length) * max(totals.sequences, 1))


class TokenSum(Aggregate):
    """1: the sum over tokens. The gradient grows with the batch, so the learning rate must shrink with it."""

    def __call__(self, mask: Tensor, totals: Totals) -> float:
        return 1.0


class PerGroupToken(Signal):
    """(Mean number of responses per prompt in the rollout batch) / (tokens of the row's group), [N, T]."""

    def __call__(self, rollouts: Rollouts) -> Tensor:
        alive = rollouts.mask.any(1)
        groups = Groups.of(rollouts.group, alive)
        tokens = groups.sum(rollouts.mask.sum(1)).clamp(min=1).double()
        prompts = rollouts.group[alive].unique().numel()
        return (alive.sum() / max(prompts, 1) / tokens)[:, None].expand(rollouts.mask.shape)


class PromptMean(Aggregate):
    """Every prompt counts alike, and so do the tokens of its group: 1 / (tokens of the group · prompts of the step).

    Prompts are sequences of the step / responses per prompt, exact if all groups have one size.
    """

    share: PerGroupToken = PerGroupToken()

    def __call__(self, mask: Tensor, totals: Totals, *share: Tensor) -> Tensor:
        return share[0] / max(totals.sequences, 1)
