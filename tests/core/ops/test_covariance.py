"""Token-wise covariance of advantage and log-probability, by hand."""

from __future__ import annotations

import torch

from tokenpo.core.ops import covariance


def test_by_hand() -> None:
    """Over the tokens A = 1, -1, 3 (mean 1) and lp = -1, -2, -6 (mean -3).

    0 · 2 = 0;  -2 · 1 = -2;  2 · -3 = -6. The fourth place holds zeros and counts in neither mean.
    """
    advantage = torch.tensor([[1.0, -1.0], [3.0, 0.0]], dtype=torch.float64, requires_grad=True)
    logprob = torch.tensor([[-1.0, -2.0], [-6.0, 0.0]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True], [True, False]])
    seen = covariance.tokenwise(advantage, logprob, 3)
    assert seen[mask].tolist() == [0, -2, -6]
    assert not seen.requires_grad
    assert advantage.tolist() == [[1, -1], [3, 0]]


def test_a_token_alone_covaries_with_nothing_and_none_is_no_division_by_zero() -> None:
    advantage, logprob = torch.tensor([[2.0, 0.0]]), torch.tensor([[-3.0, 0.0]])
    assert covariance.tokenwise(advantage, logprob, 1)[0, 0] == 0
    assert covariance.tokenwise(0 * advantage, 0 * logprob, 0).tolist() == [[0, 0]]
