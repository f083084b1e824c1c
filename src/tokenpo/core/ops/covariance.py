"""Covariance of advantage and log-probability over the tokens of a batch (2505.22617)."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def tokenwise(advantage: Tensor, logprob: Tensor, count: Tensor | int) -> Tensor:
    """(A_t − mean A)(lp_t − mean lp), without gradient; [N, T].

    Args:
        advantage, logprob: [N, T], 0 at tokens that do not count, such as padding; their covariance is meaningless.
        count: number of tokens that count.
    """
    count = max(1, int(count))
    return (advantage - advantage.sum() / count) * (logprob - logprob.sum() / count)
