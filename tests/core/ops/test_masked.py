"""Masked means, by hand."""

from __future__ import annotations

import pytest
import torch

from tokenpo.core.ops import masked

NAN, INF = float("nan"), float("inf")
X = torch.tensor([[1.0, 3.0, NAN], [6.0, INF, NAN], [NAN, NAN, NAN]], dtype=torch.float64)
MASK = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])


@pytest.mark.parametrize(
    ("mask", "dim", "expected"),
    [
        (MASK, None, 10 / 3),  # (1 + 3 + 6) / 3, whatever stands where the mask is false
        (MASK, 1, [[2.0], [6.0], [0.0]]),  # nothing gives 0
        (MASK, 0, [[3.5, 3.0, 0.0]]),
        (torch.zeros_like(MASK), None, 0.0),
    ],
)
def test_mean_by_hand(mask: torch.Tensor, dim: int | None, expected: float | list) -> None:
    wanted = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(masked.mean(X, mask, dim), wanted, rtol=1e-15, atol=0)


def test_mean_gives_padding_no_gradient() -> None:
    """d mean / dx = 1/3 on each of the three tokens, exactly 0 elsewhere, also under NaN."""
    x = X.clone().requires_grad_()
    masked.mean(x, MASK).backward()
    assert torch.equal(x.grad, MASK.double() / 3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_keep_is_where(dtype: torch.dtype) -> None:
    """Bit for bit, and nothing that the mask shuts out gets through: not NaN, not infinity, not the sign of a zero."""
    x = torch.tensor([[1.5, -0.0, NAN], [INF, -INF, -2.0]], dtype=dtype)
    mask = torch.tensor([[True, False, False], [False, True, True]])
    seen = masked.keep(x, mask)
    assert seen.dtype == dtype
    assert seen.tolist() == [[1.5, 0.0, 0.0], [0.0, -INF, -2.0]]
    assert not torch.signbit(seen[~mask]).any()
