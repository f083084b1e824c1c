"""Aggregates: from token losses to one number. Denominators come from outside, so rows add up in any split."""

from __future__ import annotations

from torch import Tensor

from ..ops.group import Groups
from ..ranges import Positive
from ..types import Rollouts, Totals
from .part import Aggregate, Signal


class TokenMean(Aggregate):
    """Every token counts alike: 1 / tokens of the step. DAPO."""

    def __call__(self, mask: Tensor, totals: Totals) -> float:
        return 1.0 / max(totals.tokens, 1)  # 0 where everything was rejected


class SequenceMean(Aggregate):
    """Every response counts alike, and every token inside it: 1 / (|o_i| · sequences of the step). GRPO."""

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
    """1: a sum over the tokens, so that the step grows with the batch, and the learning rate must shrink with it."""

    def __call__(self, mask: Tensor, totals: Totals) -> float:
        return 1.0


class PerGroupToken(Signal):
    """Responses of a prompt, in the mean over the rollout batch, over the tokens of the row's group [N, T]."""

    def __call__(self, rollouts: Rollouts) -> Tensor:
        alive = rollouts.mask.any(1)
        groups = Groups.of(rollouts.group, alive)
        tokens = groups.sum(rollouts.mask.sum(1)).clamp(min=1).double()
        prompts = rollouts.group[alive].unique().numel()
        return (alive.sum() / max(prompts, 1) / tokens)[:, None].expand(rollouts.mask.shape)


class PromptMean(Aggregate):
    """Every prompt counts alike, and every token of its responses: 1 / (tokens of the group · prompts of the step).

    The prompts of a step are its sequences over the responses per prompt, so groups of one size are counted exactly.
    """

    share: PerGroupToken = PerGroupToken()

    def __call__(self, mask: Tensor, totals: Totals, *share: Tensor) -> Tensor:
        return share[0] / max(totals.sequences, 1)
