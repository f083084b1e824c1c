"""Where a push goes: its shares on kinds of tokens, and how alike two pushes are."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...core.ops import ranked
from ...runs.rollouts import Recording


@dataclass(frozen=True, eq=False)
class TokenKinds:
    """The kinds of tokens that shares are taken of; each [N, T] bool, inside the mask.

    Args:
        right, wrong: of responses judged so; None where no response was judged.
        high, low: with an entropy at or above, below the threshold; None where no entropy is known.
        threshold: the quantile of the entropy, nats.
    """

    mask: Tensor
    right: Tensor | None
    wrong: Tensor | None
    high: Tensor | None
    low: Tensor | None
    threshold: float | None

    @staticmethod
    def of(recording: Recording, quantile: float) -> TokenKinds:
        """The quantile is the nearest-rank one over all response tokens of the recording."""
        mask, entropy = recording.rollouts.mask, recording.entropy
        right = wrong = high = low = threshold = None
        if any(verdict is not None for verdict in recording.correct):
            right, wrong = (
                torch.tensor([verdict is answer for verdict in recording.correct])[:, None] & mask
                for answer in (True, False)
            )
        if entropy is not None:
            threshold = float(ranked.quantile(entropy[mask], quantile))
            high = mask & (entropy >= threshold)
            low = mask & ~high
        return TokenKinds(mask, right, wrong, high, low, threshold)


@dataclass(frozen=True)
class Shares:
    """A row of the table; NaN where it is undefined. `size` is the mean |push| of a token, `silent` and `clipped` are
    fractions of the tokens, all others of Σ |push|; `up` is on tokens made more likely.
    """

    size: float
    up: float
    right: float
    wrong: float
    high: float
    low: float
    silent: float
    clipped: float


def shares(push: Tensor, clipped: Tensor, kinds: TokenKinds) -> Shares:
    """The shares of one method's push [N, T]."""
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


def of_tokens(kinds: TokenKinds) -> Shares:
    """The shares of a push that is equal on all tokens, to compare the methods' with."""
    alike = shares(kinds.mask.double(), torch.zeros_like(kinds.mask), kinds)
    return replace(alike, size=math.nan, up=math.nan, silent=math.nan, clipped=math.nan)


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
