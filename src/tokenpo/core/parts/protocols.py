"""The protocol of each slot: what a stage is given and what it gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .part import Part

if TYPE_CHECKING:
    from torch import Tensor

    from ..types import Batch, Rollouts, Totals, Trust


class Shaping(Part):
    """Adds to the reward of a rollout; the outcome itself stays readable."""

    def __call__(self, rollouts: Rollouts) -> Tensor:
        """[N] in units of the reward."""
        raise NotImplementedError


class CreditStage(Part):
    """Phase one: rewards of whole groups become advantages of tokens.

    Attributes:
        across_groups: true where the credit of a rollout also depends on other groups than its own.
        columns: fewest columns of `Rollouts.rewards` that it can be given, where it reads them.
    """

    across_groups: Any = False
    columns: Any = 1

    def __call__(self, rollouts: Rollouts, bonus: Tensor) -> Tensor:
        """Advantage [N, T] from rollouts.reward [N] and the shaping's `bonus` [N]; padding may hold anything finite."""
        raise NotImplementedError


class SurrogateStage(Part):
    """Phase two: the maximised objective of a token inside its trust region.

    Attributes:
        own_slope: true where it is not the pessimistic clip: its slope is another one than ratio · advantage between
            its bounds and none beyond them.
    """

    own_slope: Any = False

    def __call__(self, batch: Batch) -> Trust:
        raise NotImplementedError


class Weight(Part):
    """A factor ≥ 0 on the surrogate of a token. It commutes with the pessimistic minimum, so it is also a factor on the
    advantage. Always evaluated without gradient."""

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        """[N, T] ≥ 0."""
        raise NotImplementedError


class Penalty(Part):
    """Added to the loss of a token; carries its own coefficient.

    Attributes:
        follows_advantage: true where it is 0 wherever the advantage is, so that engines may skip rows without one.
    """

    follows_advantage: Any = False

    def __call__(self, batch: Batch, trust: Trust) -> Tensor:
        """[N, T], 0 on padding."""
        raise NotImplementedError


class Aggregate(Part):
    """The coefficient of each token's loss in the scalar."""

    def __call__(self, mask: Tensor, totals: Totals) -> Tensor | float:
        """A number, [N, 1] or [N, T]; sums to about 1 over the step. May count nothing but the row's own length."""
        raise NotImplementedError
