"""Aggregates: coefficients that sum token losses to one number. Denominators are passed in, so any split adds up."""

from __future__ import annotations

from torch import Tensor

from ..ops.group import Groups
from ..ranges import Positive
from ..types import Rollouts, Totals
from .part import Aggregate, Signal


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

    The number of prompts is taken as sequences of the step / responses per prompt, exact if all groups have one size.
    """

    share: PerGroupToken = PerGroupToken()

    def __call__(self, mask: Tensor, totals: Totals, *share: Tensor) -> Tensor:
        return share[0] / max(totals.sequences, 1)
