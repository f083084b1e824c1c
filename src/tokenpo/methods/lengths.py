"""How a response's tokens make one ratio, and how its length counts."""

from collections.abc import Mapping
from typing import Annotated

import torch
from torch import Tensor

from ..core.objective import Objective
from ..core.ops import masked, ratio
from ..core.parts.credit import GroupAdvantage
from ..core.parts.loss import ConstantLength, SequenceMean
from ..core.parts.part import MemorySignal, Signal
from ..core.parts.surrogate import Clip, FixedBounds, Ratio
from ..core.parts.weights import SignalWeight
from ..core.ranges import Count, Finite, NotNegative, Positive
from ..core.types import Batch, Rollouts
from .options import High, Low
from .paper import Paper

Power = Annotated[Finite, "power of the mean in the first rollout batch"]
LastPower = Annotated[Finite, "its power from then on"]
Steps = Annotated[Count, "rollout batches until then; between, the power changes linearly"]


class Annealed(MemorySignal):
    """A number that goes from `first` to `last` over the rollout batches, the same at every token [N, T]."""

    first: Power
    last: LastPower
    batches: Steps

    def start(self) -> Mapping[str, float]:
        return {"batch": 0.0}

    def after(self, numbers: Mapping[str, float], rollouts: Rollouts) -> Mapping[str, float]:
        return {"batch": numbers["batch"] + 1}

    def __call__(self, rollouts: Rollouts, numbers: Mapping[str, float]) -> Tensor:
        progress = min(1.0, numbers["batch"] / self.batches)
        return torch.full_like(rollouts.old_logprob, self.first + (self.last - self.first) * progress)


class HolderSequence(Ratio):
    """ρ_i = (mean_t r_it^p)^(1/p), the geometric mean for |p| < 1e-6."""

    of_response = True
    power: Annealed

    def __call__(self, batch: Batch) -> Tensor:
        p, x = batch.signal(self.power)[:, :1], self.log(batch)
        flat = p.abs() < 1e-6
        power = torch.where(flat, 1.0, p) * x
        top = masked.keep(power.detach(), batch.mask).amax(1, keepdim=True)
        mean = masked.mean((power - top).exp(), batch.mask, dim=1).clamp(min=torch.finfo(x.dtype).tiny)
        log = torch.where(flat, masked.mean(x, batch.mask, dim=1), (mean.log() + top) / torch.where(flat, 1.0, p))
        return log.clamp(-ratio.BOUND, ratio.BOUND).exp().expand_as(x)


@Paper(
    "Hölder Policy Optimisation", "2605.12058", "code", code="YihangChen9/HolderPO@1d27a37:train_zero_math_holder.py"
)
def holder(
    *, first: Power = 2.0, last: LastPower = -2.0, batches: Steps = 1000, low: Low = 0.2, high: High = 0.2
) -> Objective:
    """Clips one ratio for the response, a power mean of its tokens' whose power falls while training.

        ρ_i = (mean_t r_it^p)^(1/p),   exp(mean_t log r_it) at p = 0;   p from first to last over the rollout batches
        J = 1/N Σ_i min(ρ_i A_i, clip(ρ_i, 1−low, 1+high) A_i)

    A token's share of the push is r^p / Σ r^p: a high power lets the tokens that rose most learn, a low one those that
    fell.
    Defaults: from 2 to −2 in 1000 steps, clip 0.2/0.2 (code).
    Departures: the authors' steps are optimiser steps, here rollout batches.
    Reductions: first = last = 0 is GSPO with that clip, 1 the ratio of grpo_s.
    """
    return Objective(
        GroupAdvantage(), Clip(FixedBounds(low, high), HolderSequence(Annealed(first, last, batches))), SequenceMean()
    )


class LengthShare(Signal):
    """|o_i|^−alpha over its mean over the responses of the rollout batch [N, T]."""

    alpha: NotNegative

    def __call__(self, rollouts: Rollouts) -> Tensor:
        length = rollouts.mask.sum(1).double()
        power = torch.where(length > 0, length.clamp(min=1) ** -self.alpha, 0.0)
        share = power * (length > 0).sum() / power.sum().clamp(min=1e-300)
        return share.to(rollouts.old_logprob.dtype)[:, None].expand(rollouts.mask.shape)


@Paper(
    "ΔL Normalization: Rethink Loss Aggregation in RLVR",
    "2509.07558",
    "code",
    code="zerolllin/Delta-L-Normalization@89da5b9:verl/trainer/ppo/core_algos.py",
)
def delta_l(
    *,
    alpha: Annotated[NotNegative, "how fast the weight of a response falls with its length"] = 0.75,
    length: Annotated[Positive | None, "the constant L in tokens; None takes the step's `Totals.length`"] = None,
    low: Low = 0.2,
    high: High = 0.3,
) -> Objective:
    """Weights a response by a power of its length, with a constant denominator.

        w_i = |o_i|^−alpha / mean_j |o_j|^−alpha,   j over the responses of the rollout batch
        J = 1/(N L) Σ_i w_i Σ_t min(r_it A_i, clip(r_it, 1−low, 1+high) A_i)

    If the variance of a response's gradient grows with its length, alpha = 1 has the least variance among the weights
    that leave the direction unbiased; a smaller one lets long responses count more.
    Defaults: alpha 0.75, clip 0.2/0.3 (the authors' script for mathematics; 1 for Countdown).
    Reductions: alpha = 0 has Dr. GRPO's denominator. alpha = 1 is GRPO up to a factor of the step.
    """
    weights = (SignalWeight(LengthShare(alpha)),)
    return Objective(GroupAdvantage(), Clip(FixedBounds(low, high)), ConstantLength(length), weights=weights)
