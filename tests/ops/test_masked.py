"""Masked means, by hand."""

from __future__ import annotations

import pytest
import torch

from tokenpo.ops import masked

NAN, INF = float("nan"), float("inf")
X = torch.tensor([[1.0, 3.0, NAN], [6.0, INF, NAN], [NAN, NAN, NAN]], dtype=torch.float64)
MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


def test_mean_over_everything() -> None:
    """(1 + 3 + 6) / 3 = 10/3, whatever stands where the mask is false."""
    seen = masked.mean(X, MASK)
    assert seen.shape == ()
    assert float(seen) == pytest.approx(10 / 3, rel=1e-15)


def test_mean_along_rows() -> None:
    """(1 + 3) / 2 = 2; 6 / 1 = 6; nothing gives 0. The dimension stays, at size 1."""
    assert masked.mean(X, MASK, 1).tolist() == [[2.0], [6.0], [0.0]]


def test_mean_along_columns() -> None:
    """(1 + 6) / 2 = 3.5; 3 / 1 = 3; nothing gives 0."""
    assert masked.mean(X, MASK, dim=0).tolist() == [[3.5, 3.0, 0.0]]


def test_mean_of_nothing_is_zero() -> None:
    assert float(masked.mean(X, torch.zeros_like(MASK))) == 0.0


def test_mean_of_a_single_token() -> None:
    only = torch.tensor([[False, True, False], [False] * 3, [False] * 3])
    assert float(masked.mean(X, only)) == 3.0


def test_mean_gives_padding_no_gradient() -> None:
    """d mean / dx = 1/3 on each of the three tokens, exactly 0 elsewhere, also under NaN."""
    x = X.clone().requires_grad_()
    masked.mean(x, MASK).backward()
    assert torch.equal(x.grad, MASK.double() / 3)
