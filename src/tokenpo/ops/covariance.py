"""Covariance of advantage and log-probability over the tokens of a batch (2505.22617)."""

from __future__ import annotations

from torch import Tensor

from . import masked


def tokenwise(advantage: Tensor, logprob: Tensor, mask: Tensor) -> Tensor:
    """(A_t − mean A)(lp_t − mean lp), means over the true entries of mask; [N, T], without gradient."""
    above = advantage.detach() - masked.mean(advantage.detach(), mask)
    return above.mul_(logprob.detach() - masked.mean(logprob.detach(), mask))
