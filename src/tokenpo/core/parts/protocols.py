"""The protocol of each slot: a stage's arguments and its result."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..types import Batch, Rollouts, Totals, Trust
from .part import Part


class Shaping(Part):
    """A bonus on the reward of a rollout."""

    def __call__(self, rollouts: Rollouts) -> Tensor:
        """[N] in units of the reward."""
        raise NotImplementedError


class CreditStage(Part):
    """Phase one: rewards of whole groups become advantages of tokens.

    Attributes:
        across_groups: the credit of a rollout also depends on other groups than its own.
        columns: fewest columns of `Rollouts.rewards` that it accepts, if it reads them.

    A credit stage that is also a `Memory` is called with a third argument, the numbers that earlier batches left, and
    declares it as `*numbers: Mapping[str, float]`.
    """

    across_groups: Any = False
    columns: Any = 1

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        """Advantage [N, T] from rollouts.reward [N] and the shaping's `bonus` [N]; padding may hold anything finite."""
        raise NotImplementedError


class SurrogateStage(Part):
    """Phase two: the maximised objective of a token inside its trust region.

    Attributes:
        own_slope: it is not the pessimistic clip, whose slope is ratio · advantage between its bounds and 0 beyond.
    """

    own_slope: Any = False

    def __call__(self, batch: Batch) -> Trust:
        raise NotImplementedError


class Weight(Part):
    """A factor ≥ 0 on the surrogate of a token, evaluated without gradient.

    It commutes with the pessimistic minimum, so it is also a factor on the advantage.
    """

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        """[N, T] ≥ 0."""
        raise NotImplementedError


class Penalty(Part):
    """A term of a token's loss, with its own coefficient.

    Attributes:
        follows_advantage: it is 0 wherever the advantage is 0; engines may then skip such rows.
    """

    follows_advantage: Any = False

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        """[N, T], 0 on padding."""
        raise NotImplementedError


class Aggregate(Part):
    """The coefficient of each token's loss in the scalar.

    Attributes:
        share: a signal of phase one: what more than a row's own length decides.

    An aggregate with a `share` is called with a third argument, the signal's [N, T] tensor, and declares it as
    `*share: Tensor`.
    """

    share: Any = None

    def __call__(self, mask: Tensor, totals: Totals) -> Tensor | float:
        """A number, [N, 1] or [N, T]; of a mean it sums to about 1 over the step.

        Only a row's own length may be counted here.
        """
        raise NotImplementedError
