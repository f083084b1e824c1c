"""Masked means and nearest-rank quantiles, by hand."""

from __future__ import annotations

import pytest
import torch

from tokenpo.errors import TokenPOError
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


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ([5.0], 0.0, 5.0),
        ([5.0], 1.0, 5.0),
        ([2.0, 1.0], 0.5, 1.0),  # 0.5 · 1 = 0.5, a half, to even: rank 0
        ([4.0, 2.0, 3.0, 1.0], 0.5, 3.0),  # 0.5 · 3 = 1.5, a half, to even: rank 2
        ([6.0, 5.0, 4.0, 3.0, 2.0, 1.0], 0.5, 3.0),  # 0.5 · 5 = 2.5, a half, to even: rank 2
        ([5.0, 4.0, 3.0, 2.0, 1.0], 0.8, 4.0),  # 0.8 · 4 = 3.2: rank 3
        ([5.0, 4.0, 3.0, 2.0, 1.0], 0.9, 5.0),  # 0.9 · 4 = 3.6: rank 4
        ([5.0, 4.0, 3.0, 2.0, 1.0], 0.0, 1.0),
        ([5.0, 4.0, 3.0, 2.0, 1.0], 1.0, 5.0),
        ([7.0, 7.0, 1.0], 0.5, 7.0),  # ties keep their places: sorted 1, 7, 7; rank 1
        ([-3.0, -1.0, -2.0], 0.4, -2.0),  # 0.4 · 2 = 0.8: rank 1
    ],
)
def test_quantile_is_the_nearest_rank(values: list[float], q: float, expected: float) -> None:
    assert float(masked.quantile(torch.tensor(values), q)) == expected


def test_quantile_of_tokens_ignores_padding() -> None:
    """Of 1, 3, 6 the median is 3; padding would have made it something else."""
    assert float(masked.quantile(X[MASK], 0.5)) == 3.0


@pytest.mark.parametrize("q", [-0.01, 1.01, NAN])
def test_quantile_refuses_q_outside(q: float) -> None:
    with pytest.raises(TokenPOError, match=rf"quantile q = {q} lies outside \[0, 1\]"):
        masked.quantile(torch.ones(3), q)


@pytest.mark.parametrize("x", [torch.ones(2, 2), torch.ones(0), torch.tensor(1.0)])
def test_quantile_refuses_what_is_not_flat_or_is_empty(x: torch.Tensor) -> None:
    with pytest.raises(TokenPOError, match=r"flat tensor with at least one value, got shape \["):
        masked.quantile(x, 0.5)


@pytest.mark.parametrize(("q", "expected"), [(0.0, [1, 2, 7]), (0.4, [3, 2, 7]), (0.75, [4, 9, 8]), (1.0, [5, 9, 8])])
def test_row_quantile_is_the_nearest_rank_of_each_row(q: float, expected: list[float]) -> None:
    """Ranks round(q (n − 1)) of 5, 2 and 2 values, halves to even: 0.4 → 1.6 → 2, 0.4 → 0; 0.75 → 3, 0.75 → 1."""
    x = torch.tensor([[5.0, 3, 1, 4, 2], [9, 2, NAN, NAN, NAN], [NAN, 8, NAN, 7, NAN]])
    wanted = torch.tensor(expected, dtype=torch.float32)
    torch.testing.assert_close(masked.row_quantile(x, ~x.isnan(), q)[:, 0], wanted)


def test_row_quantile_of_nothing_is_above_everything() -> None:
    x = torch.zeros(1, 3)
    assert masked.row_quantile(x, torch.zeros(1, 3, dtype=torch.bool), 0.5).tolist() == [[float("inf")]]
    with pytest.raises(TokenPOError, match=r"1\.5"):
        masked.row_quantile(x, x == 0, 1.5)


def test_row_quantile_ranks_in_double_precision() -> None:
    """0.035 · 300 is 10.500000000000002 in float64, rank 11; in float32 it is 10.5, which rounds to the even 10."""
    x = torch.arange(301.0)[None]
    assert masked.row_quantile(x, x >= 0, 0.035).tolist() == [[11.0]]
    assert masked.quantile(x[0], 0.035) == 11
