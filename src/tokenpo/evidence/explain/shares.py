"""Sums over all tokens: whose the push of a method is, and how alike two methods push."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ...core.ops import ranked
from ...runs.rollouts import Recording


@dataclass(frozen=True, eq=False)
class Kinds:
    """The kinds of tokens that shares are taken of; each [N, T] bool, inside the mask.

    Args:
        right: of responses that are said to be right.
        wrong: of responses that are said to be wrong; a response that was not judged is in neither.
        high: the entropy is at or above the quantile.
        low: it is below.
        threshold: the quantile, nats; None where no entropy is known; then `high` and `low` are None too.
    """

    mask: Tensor
    right: Tensor | None
    wrong: Tensor | None
    high: Tensor | None
    low: Tensor | None
    threshold: float | None

    @staticmethod
    def of(recording: Recording, quantile: float) -> Kinds:
        """The quantile is the nearest-rank one over all response tokens of the recording."""
        mask, entropy = recording.rollouts.mask, recording.entropy
        right, wrong = (
            torch.tensor([verdict is answer for verdict in recording.correct])[:, None] & mask
            for answer in (True, False)
        )
        judged = any(verdict is not None for verdict in recording.correct)
        threshold = None if entropy is None else float(ranked.quantile(entropy[mask], quantile))
        high = None if entropy is None or threshold is None else mask & (entropy >= threshold)
        return Kinds(
            mask=mask,
            right=right if judged else None,
            wrong=wrong if judged else None,
            high=high,
            low=None if high is None else mask & ~high,
            threshold=threshold,
        )


@dataclass(frozen=True)
class Shares:
    """What a row of the table says; NaN where it is undefined. All but `size` are fractions of Σ |push|.

    Args:
        size: mean |push| of a token.
        up: on tokens that are made more likely.
        right, wrong: on tokens of right, of wrong responses.
        high, low: on tokens of high, of low entropy.
        silent: fraction of the tokens whose push is 0.
        clipped: fraction of the tokens whose gradient the trust region cuts.
    """

    size: float
    up: float
    right: float
    wrong: float
    high: float
    low: float
    silent: float
    clipped: float


def shares(push: Tensor, clipped: Tensor, kinds: Kinds) -> Shares:
    """Of the push [N, T] of one method."""
    size, count = push.abs(), kinds.mask.sum()

    def part(kind: Tensor | None) -> float:
        return math.nan if kind is None else _over(size[kind].sum(), size.sum())

    return Shares(
        size=_over(size.sum(), count),
        up=part(push > 0),
        right=part(kinds.right),
        wrong=part(kinds.wrong),
        high=part(kinds.high),
        low=part(kinds.low),
        silent=_over(((push == 0) & kinds.mask).sum(), count),
        clipped=_over(clipped.sum(), count),
    )


def of_tokens(kinds: Kinds) -> Shares:
    """The same of a push that is equal on all tokens: what the shares of a method are to be compared with."""
    nobody = torch.zeros_like(kinds.mask)
    alike = shares(kinds.mask.double(), nobody, kinds)
    return Shares(**{**vars(alike), "size": math.nan, "up": math.nan, "silent": math.nan, "clipped": math.nan})


def cosine(a: Tensor, b: Tensor) -> float:
    """Of two pushes [N, T] as vectors over all tokens; NaN where one of them is 0 everywhere.

    >>> round(cosine(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]])), 6)
    0.707107
    """
    # Scaled first, so that squares of small numbers do not vanish.
    a, b = (x.double() / (x.abs().max() or 1.0) for x in (a, b))
    return _over((a * b).sum(), a.norm() * b.norm())


def _over(a: Tensor, b: Tensor) -> float:
    # Counts are integers, whose quotient torch would round to float32.
    return float(a) / float(b) if b else math.nan
