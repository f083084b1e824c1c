"""Comparisons as numbers are torch's comparisons, ties, infinities and NaN included."""

from __future__ import annotations

import operator

import pytest
import torch

from tokenpo.core.ops import flags

INF, NAN = float("inf"), float("nan")
A = [0.0, -0.0, 1.0, 2.0, -INF, INF, NAN, 1.0]
B = [-0.0, 0.0, 2.0, 1.0, -INF, 1.0, 1.0, NAN]
PAIRS = {
    flags.less: operator.lt,
    flags.greater: operator.gt,
    flags.at_most: operator.le,
    flags.equal: operator.eq,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("flag", PAIRS, ids=lambda flag: flag.__name__)
def test_is_torchs_comparison(flag, dtype: torch.dtype) -> None:
    a, b = torch.tensor(A, dtype=dtype), torch.tensor(B, dtype=dtype)
    for other in (b, 1.0, b[2]):
        seen = flag(a, other)
        assert seen.dtype == dtype
        assert seen.tolist() == [float(x) for x in PAIRS[flag](a, other).tolist()]


def test_carries_no_graph() -> None:
    a, b = (torch.ones(2, requires_grad=True) for _ in range(2))
    assert not flags.less(a, b).requires_grad


def test_broadcasts() -> None:
    a, b = torch.tensor([[1.0, 1.0], [3.0, 3.0]]), torch.tensor([2.0, 4.0])
    assert flags.less(a, b).tolist() == [[1, 1], [0, 1]]


def test_number() -> None:
    """Of bools 1 where they hold, of numbers the same numbers."""
    seen = flags.number(torch.tensor([True, False]), torch.float64)
    assert seen.dtype == torch.float64 and seen.tolist() == [1, 0]
    seen = flags.number(torch.tensor([0.5, -2.0]), torch.float64)
    assert seen.dtype == torch.float64 and seen.tolist() == [0.5, -2]
