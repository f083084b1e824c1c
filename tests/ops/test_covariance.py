"""Token-wise covariance of advantage and log-probability, by hand."""

from __future__ import annotations

import torch

from tokenpo.ops import covariance


def test_by_hand() -> None:
    """Over the tokens A = 1, -1, 3 (mean 1) and lp = -1, -2, -6 (mean -3).

    0 · 2 = 0;  -2 · 1 = -2;  2 · -3 = -6. Padding would move both means.
    """
    advantage = torch.tensor([[1.0, -1.0], [3.0, 50.0]], dtype=torch.float64)
    logprob = torch.tensor([[-1.0, -2.0], [-6.0, -70.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True], [True, False]])
    assert covariance.tokenwise(advantage, logprob, mask)[mask].tolist() == [0, -2, -6]


def test_equal_advantages_covary_with_nothing() -> None:
    mask = torch.tensor([[True, True, False]])
    logprob = torch.tensor([[-1.0, -2.0, -9.0]])
    assert covariance.tokenwise(torch.full((1, 3), 2.0), logprob, mask)[mask].tolist() == [0, 0]
