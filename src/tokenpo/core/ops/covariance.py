"""Covariance of advantage and log-probability over the tokens of a batch (2505.22617)."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

# Entries of a block on a CPU: several blocks fit its cache.
_PLACES = 2**15


def tokenwise(advantage: Tensor, logprob: Tensor, count: int) -> Tensor:
    """(A_t − mean A)(lp_t − mean lp), without gradient; [N, T].

    Args:
        advantage: [N, T], 0 at tokens that do not count, such as padding; their covariance is meaningless.
        logprob: [N, T], likewise.
        count: the number of tokens that count.
    """
    mean, level = _means(advantage, logprob, count)
    return (advantage.detach() - mean).mul_(logprob.detach() - level)


def in_blocks(advantage: Tensor, logprob: Tensor, count: int) -> Iterator[Tensor]:
    """The same in blocks of rows, in order, for a caller that reads each once."""
    mean, level = _means(advantage, logprob, count)
    rows = max(1, _PLACES // logprob.shape[1]) if logprob.device.type == "cpu" else len(logprob)
    for a, lp in zip(advantage.detach().split(rows), logprob.detach().split(rows), strict=True):
        yield (a - mean).mul_(lp - level)


def _means(advantage: Tensor, logprob: Tensor, count: int) -> tuple[Tensor, Tensor]:
    return advantage.detach().sum() / max(1, count), logprob.detach().sum() / max(1, count)
