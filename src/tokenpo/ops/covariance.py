"""Covariance of advantage and log-probability over the tokens of a batch (2505.22617)."""

from __future__ import annotations

from torch import Tensor


def tokenwise(advantage: Tensor, logprob: Tensor, count: int) -> Tensor:
    """(A_t − mean A)(lp_t − mean lp), without gradient; [N, T].

    Args:
        advantage: 0 where nothing counts, as on padding; there the covariance means nothing.
        logprob: the same.
        count: how many tokens count in the means.
    """
    advantage, logprob, count = advantage.detach(), logprob.detach(), max(1, count)
    above = advantage - advantage.sum() / count
    return above.mul_(logprob - logprob.sum() / count)
