"""Nearest-rank quantiles, by hand and against NumPy's sort, and HAPO's entropy score, which takes one."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tokenpo.base.errors import TokenPOError
from tokenpo.core.ops import masked
from tokenpo.core.parts.entropy import measure, score

NAN, INF = float("nan"), float("inf")
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


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


@pytest.mark.parametrize("q", [-0.01, 1.01, NAN])
def test_quantile_refuses_q_outside(q: float) -> None:
    with pytest.raises(TokenPOError, match=rf"quantile q = {q} lies outside \[0, 1\]"):
        masked.quantile(torch.ones(3), q)


@pytest.mark.parametrize("q", [0.0, 0.035, 0.25, 0.5, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("t", [1, 2, 3, 11, 40])
def test_row_quantile_is_found_in_the_sorted_row(q: float, t: int) -> None:
    """Of rows with any number of entries, many of them equal, between other rows' padding."""
    generator = torch.Generator().manual_seed(t)
    x = torch.randint(0, 9, (64, t), generator=generator).float()
    mask = torch.rand(64, t, generator=generator) < torch.linspace(0, 1, 64)[:, None]
    found = masked.row_quantile(x.masked_fill(~mask, NAN), mask, q)
    for row, kept, seen in zip(x, mask, found[:, 0].tolist(), strict=True):
        ascending = sorted(row[kept].tolist())
        assert seen == (ascending[round(q * (len(ascending) - 1))] if ascending else INF)


@pytest.mark.parametrize("q", [0.4, 0.9])
def test_row_quantile_of_nothing_is_above_everything(q: float) -> None:
    x = torch.zeros(1, 3)
    assert masked.row_quantile(x, torch.zeros(1, 3, dtype=torch.bool), q).tolist() == [[INF]]
    with pytest.raises(TokenPOError, match=r"1\.5"):
        masked.row_quantile(x, x == 0, 1.5)


def test_row_quantile_ranks_in_double_precision() -> None:
    """0.035 · 300 is 10.500000000000002 in float64, rank 11; in float32 it is 10.5, which rounds to the even 10."""
    x = torch.arange(301.0)[None]
    assert masked.row_quantile(x, x >= 0, 0.035).tolist() == [[11.0]]
    assert masked.quantile(x[0], 0.035) == 11


def values(kind: str, count: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    x = torch.randn(count, generator=generator, dtype=torch.float64)
    if kind == "odd":  # every value that is no plain number, many times, between numbers of all magnitudes
        special = torch.tensor([0.0, -0.0, INF, -INF, NAN, -NAN, 1e-42, -1e-42], dtype=torch.float64)
        x = (40 * x).exp2() * x.sign()
        x[::3] = special[torch.arange(len(x[::3])) % len(special)]
    if kind == "ties":
        x = x.round()
    if kind == "positive":
        x = x.square()
    return x.to(dtype)


def by_numpy(x: Tensor, rank: int) -> float:
    """NumPy's sort has NaN last, too; zeros of either sign compare equal."""
    return float(np.sort(x.double().numpy())[rank])


def same(seen: Tensor, wanted: float) -> bool:
    """Equal, NaN to NaN, and never a negative zero."""
    number = float(seen)
    return (number == wanted and np.signbit(number) == (wanted < 0)) or (number != number and wanted != wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["normal", "positive", "ties", "odd"])
@pytest.mark.parametrize("count", [3, 40, 3001])
def test_is_the_sorted_place(count: int, kind: str, dtype: torch.dtype) -> None:
    x = values(kind, count, dtype)
    for rank in sorted({0, 1, count // 3, count // 2, count - 2, count - 1}):
        seen = masked.smallest(x, rank)
        assert seen.dtype == dtype and seen.shape == ()
        assert same(seen, by_numpy(x, rank)), (rank, float(seen))


@pytest.mark.parametrize("kind", ["normal", "ties"])
@pytest.mark.parametrize("size", [1, 40, 500, 3001])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 1.0])
def test_the_largest_are_those_of_a_stable_sort(size: int, kind: str, share: float) -> None:
    """NumPy's stable sort of the negated values takes the earlier of equal ones; what is shut out counts as −inf."""
    x = values(kind, size, torch.float32)
    mask = torch.rand(size, generator=torch.Generator().manual_seed(7)) < 0.7
    mask[0] = True
    count = max(1, int(share * int(mask.sum())))
    order = np.argsort(np.where(mask, -x, np.inf), kind="stable")[:count]
    assert masked.largest(x.masked_fill(~mask, INF), mask, count).tolist() == sorted(order.tolist())


@pytest.mark.parametrize(("count", "expected"), [(1, [2]), (2, [0, 2]), (3, [0, 2])])
def test_of_the_largest_none_is_nan(count: int, expected: list[int]) -> None:
    assert masked.largest(torch.tensor([1.0, NAN, 2.0]), torch.ones(3).bool(), count).tolist() == expected


# log H = 2, -1, 0 | -3, and padding that must not count. Sorted: -3, -1, 0, 2.
LOG = torch.tensor([[2.0, -1.0, 0.0], [-3.0, 9.0, 9.0]], dtype=torch.float64)
MASK = torch.tensor([[True, True, True], [True, False, False]])


def _numbers(scale: tuple[Tensor, ...]) -> list[float]:
    return [float(x) for x in scale]


def test_measure_by_hand() -> None:
    """Quantile 0.6: round(0.6 · 3) = 2, pivot 0. Raw 2, -1, 0, -3: spread sqrt((4 + 1 + 0 + 9) / 4) = sqrt(3.5).

    top 2 / sqrt(3.5), bottom -3 / sqrt(3.5).
    """
    spread = 3.5**0.5
    scale = _numbers(measure(LOG.exp(), MASK, 0.6))
    assert scale == pytest.approx([0, spread, 2 / spread, -3 / spread], rel=1e-14, abs=1e-15)


def test_score_by_hand() -> None:
    """Pivot 0: above divided by 2, below by 3, so the spread drops out: 1, -1/3, 0, -1."""
    scale = measure(LOG.exp(), MASK, 0.6)
    seen = score(LOG.exp(), scale)[MASK]
    assert seen.tolist() == pytest.approx([1, -1 / 3, 0, -1], rel=1e-14, abs=1e-15)


def test_zero_entropy_is_floored() -> None:
    """0 and 1e-12 both count as 1e-8."""
    entropy = torch.tensor([[0.0, 1e-12, 1e-8, 1.0]], dtype=torch.float64)
    mask = torch.ones_like(entropy, dtype=torch.bool)
    scale = measure(entropy, mask, 0.0)
    assert float(scale[0]) == pytest.approx(math.log(1e-8), rel=1e-14)
    assert score(entropy, scale).tolist() == [[0, 0, 0, 1]]


def test_a_scale_without_extent_scores_zero() -> None:
    """All entropies equal: spread, top and bottom are 0, and so is every score, of both signs."""
    entropy = torch.full((2, 3), 0.3, dtype=torch.float64)
    scale = measure(entropy, torch.ones(2, 3, dtype=torch.bool), 0.8)
    assert _numbers(scale)[1:] == [0, 0, 0]
    assert not score(entropy, scale).any()
    assert not score(entropy, scale, negative_is_positive=True).any()


@pytest.mark.parametrize(("log_entropy", "quantile"), [(7.0, 1.0), (-7.0, 0.0)])
@pytest.mark.parametrize("released", [False, True])
def test_the_side_without_extent_scores_zero(log_entropy: float, quantile: float, released: bool) -> None:
    """The next batch meets an entropy above every one, or below every one, of the batch that made the scale."""
    scale = measure(LOG.exp(), MASK, quantile)
    outside = torch.tensor([log_entropy], dtype=torch.float64).exp()
    assert float(score(outside, scale, negative_is_positive=released)) == 0


def test_measure_of_nothing_is_refused() -> None:
    with pytest.raises(TokenPOError, match="at least one response token, the mask is empty"):
        measure(LOG.exp(), torch.zeros_like(MASK), 0.8)
