"""A method from outside the package, as its user writes it down.

Chosen for being no method of the table: REINFORCE on rewards that are centred over the whole batch, whose tokens weigh
(t + 1) / T by position. One new credit, one new weight; ratio, clip and aggregate are picked from the shelf.
"""

FILE = '''
"""Late: a baseline over the batch, and late tokens weigh more.

Paper: none, an example. J = 1/sum|o_i| sum_i sum_t (t + 1)/T min(r A_i, clip(r, 1 - low, 1 + high) A_i), A = R - mean R
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tokenpo import Batch, Objective, Rollouts
from tokenpo.methods import Paper
from tokenpo.core.parts import Clip, CreditStage, FixedBounds, TokenMean, Weight
from tokenpo.core.types import Trust


@dataclass(frozen=True)
class BatchAdvantage(CreditStage):
    """R - mean R over the rollouts that have tokens."""

    across_groups = True

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        counts = rollouts.mask.any(1)
        reward = rollouts.reward + bonus
        return (reward - reward[counts].mean())[:, None].expand(rollouts.mask.shape)


@dataclass(frozen=True)
class Position(Weight):
    """(t + 1) / length of the response."""

    of_response = True

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        place = batch.mask.cumsum(1).to(trust.ratio.dtype)
        return place / batch.mask.sum(1, keepdim=True).clamp(min=1)


@Paper("An example", "0000.00000", "reconstructed")
def late(*, low: float = 0.2, high: float = 0.2) -> Objective:
    """Late tokens weigh more.

    Args:
        low: clip below.
        high: clip above.
    """
    return Objective(
        name="late",
        credit=BatchAdvantage(),
        surrogate=Clip(FixedBounds(low, high)),
        weights=(Position(),),
        aggregate=TokenMean(),
    )
'''
