"""Statistics over masks and groups by hand: any ids, rows in any order, rows that do not count."""

import math

import pytest
import torch

from tokenpo.core.ops import masked
from tokenpo.core.ops.group import Groups, others_mean, prior_weight

NAN, INF = float("nan"), float("inf")
HELD = torch.tensor([[1.0, 3.0, NAN], [6.0, INF, NAN], [NAN, NAN, NAN]], dtype=torch.float64)
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
    torch.testing.assert_close(masked.mean(HELD, mask, dim), wanted, rtol=1e-15, atol=0)


def test_mean_gives_padding_no_gradient() -> None:
    """d mean / dx = 1/3 on each of the three tokens, exactly 0 elsewhere, also under NaN."""
    x = HELD.clone().requires_grad_()
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


# Groups 70: rows 0, 2, 5 (row 5 does not count); 3: rows 1, 4; 9: row 3 alone; 11: row 6, which does not count.
IDS = torch.tensor([70, 3, 70, 9, 3, 70, 11])
VALID = torch.tensor([True, True, True, True, True, False, False])
X = torch.tensor([1.0, 10.0, 4.0, 7.0, 20.0, 1000.0, 500.0], dtype=torch.float64)


GROUPS = Groups.of(IDS, VALID)
INF, A, B = float("inf"), 4.5**0.5, 50**0.5
EQUAL = torch.tensor([1.0, 2.0, 1.0, 3.0, 2.0, 9.0, 9.0])  # only row 5, which does not count, differs in its group


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [
        # a row that does not count sees its group's figure without being in it
        (GROUPS.index, [3, 0, 3, 1, 0, 3, 2]),
        (GROUPS.sum(X), [5, 30, 5, 7, 30, 5, 0]),
        (GROUPS.sum(torch.where(VALID, X, torch.nan)), [5, 30, 5, 7, 30, 5, 0]),
        (GROUPS.sum(torch.stack([X, -X], 1))[:, 1], [-5, -30, -5, -7, -30, -5, 0]),
        (GROUPS.size(), [2, 2, 2, 1, 2, 2, 0]),
        (GROUPS.one().sum(X), [42] * 7),
        (GROUPS.one().size(), [5] * 7),
        (GROUPS.extremes(X)[0], [1, 10, 1, 7, 10, 1, INF]),
        (GROUPS.extremes(X)[1], [4, 20, 4, 7, 20, 4, -INF]),
        (GROUPS.median(X), [2.5, 15, 2.5, 7, 15, 2.5, INF]),
        (GROUPS.varied(X), [True, True, True, False, True, False, False]),
        (GROUPS.varied(EQUAL), [False] * 7),
        (GROUPS.above_mean(X), [False, False, True, False, True, False, False]),
        (GROUPS.above_mean(EQUAL), [False] * 7),
        # deviations ±1.5 and ±5, ddof 1: sqrt(4.5 / 1) and sqrt(50 / 1); ddof 0: sqrt(4.5 / 2) and sqrt(50 / 2)
        (GROUPS.mean_std(X)[0], [2.5, 15, 2.5, 7, 15, 2.5, 0]),
        (GROUPS.mean_std(X)[1], [A, B, A, 0, B, A, 0]),
        (GROUPS.mean_std(X, correction=0)[1], [1.5, 5, 1.5, 0, 5, 1.5, 0]),
    ],
)
def test_by_hand(statistic: torch.Tensor, expected: list) -> None:
    assert statistic.tolist() == pytest.approx(expected, rel=1e-15)


def test_median_of_odd_and_even_numbers_of_rows() -> None:
    """0: 5, 1, 9 and a row of 100 that does not count: 5. 1: 8, 2, 4, 2: (2 + 4) / 2 = 3."""
    ids = torch.tensor([0, 1, 0, 1, 1, 0, 1, 0])
    valid = torch.tensor([True, True, True, True, True, True, True, False])
    x = torch.tensor([5, 8, 1, 2, 4, 9, 2, 100])
    assert Groups.of(ids, valid).median(x).tolist() == [5, 3, 5, 3, 3, 5, 3, 5]
    large = Groups.of(ids, valid).median(x + 2**24)  # 2^24 + 1 is no float32
    assert (large - 2**24).tolist() == [5, 3, 5, 3, 3, 5, 3, 5]


def test_equal_values_are_not_above_their_mean() -> None:
    """Three times 0.1 is not 0.3: the mean of equal numbers may round below them. A value at the mean is not above."""
    groups = Groups.of(torch.tensor([0, 0, 0]), torch.ones(3, dtype=torch.bool))
    for value in (0.1, 0.7, 1e-3):
        assert not groups.above_mean(torch.full((3,), value, dtype=torch.float64)).any()
    assert groups.above_mean(torch.tensor([1.0, 2.0, 3.0])).tolist() == [False, False, True]


def test_weighted_mean_std_by_hand() -> None:
    """70 with weights 1 and 3: mean (1 + 12) / 4 = 13/4, variance (1·(9/4)² + 3·(3/4)²) / 4 = (81 + 27)/64 = 27/16.

    3 with weights 2 and 2: mean 15, variance 25.
    """
    weight = torch.tensor([1, 2, 3, 5, 2, 100, 100])
    mean, std = GROUPS.mean_std(X, weight=weight, correction=0)
    a = (27 / 16) ** 0.5
    assert mean.tolist() == pytest.approx([13 / 4, 15, 13 / 4, 7, 15, 13 / 4, 0], rel=1e-15)
    assert std.tolist() == pytest.approx([a, 5, a, 0, 5, a, 0], rel=1e-15)


def test_mean_std_are_float64_and_survive_large_offsets() -> None:
    """4096 and 4096 + 2^-11 are float32 neighbours: their deviation is 2^-11 / sqrt(2), to float64 accuracy."""
    groups = Groups.of(torch.tensor([0, 0]), torch.tensor([True, True]))
    mean, std = groups.mean_std(torch.tensor([4096.0, 4096.0 + 2**-11]))
    assert mean.dtype == std.dtype == torch.float64
    assert mean.tolist() == [4096 + 2**-12] * 2
    assert std.tolist() == pytest.approx([2**-11 / 2**0.5] * 2, rel=1e-14)


def test_order_of_rows_and_names_of_groups_are_free() -> None:
    order = torch.tensor([6, 3, 0, 5, 1, 4, 2])
    other = Groups.of((IDS * 31 + 7)[order], VALID[order])
    assert torch.equal(other.sum(X[order]), GROUPS.sum(X)[order])
    assert torch.equal(other.extremes(X[order])[0], GROUPS.extremes(X)[0][order])
    assert torch.equal(other.median(X[order]), GROUPS.median(X)[order])


@pytest.mark.parametrize(
    ("group", "valid", "x", "prior", "expected"),
    [
        # Of row 0 the others are 2 and 6, the rows of other groups 4, 8 and 3: (2 · 4 + 2 · 5) / 4.
        ([0, 0, 0, 1, 1, 2], [1] * 6, [1.0, 2, 6, 4, 8, 3], 2.0, [4.5, 4.25, 3.25, 14 / 3, 10 / 3, 4.2]),
        ([0, 0, 0, 1, 1, 2], [1] * 6, [1.0, 2, 6, 4, 8, 3], 0.0, [4, 3.5, 1.5, 8, 4, 4.2]),
        ([0, 0, 0, 1, 1, 2], [1] * 6, [1.0, 2, 6, 4, 8, 3], math.inf, [5, 5, 5, 3, 3, 4.2]),
        ([0, 0, 1], [1] * 3, [1.0, 5, 7], 1.0, [6, 4, 3]),  # one row outside
        ([0, 1], [1, 1], [3.0, 9], 1.0, [9, 3]),
        ([0], [1], [3.0], 1.0, [3]),  # nothing else: x itself
        ([0, 0, 0], [1, 1, 0], [2.0, 4, 100], 1.0, [4, 2, 100]),  # a row that does not count: x itself
        ([0, 0, 0], [1] * 3, [2.0**24, 1, 1], 0.0, [1, (2**24 + 1) / 2, (2**24 + 1) / 2]),  # more than float32 holds
    ],
)
def test_the_mean_of_the_others_by_hand(group: list, valid: list, x: list, prior: float, expected: list) -> None:
    found = others_mean(Groups.of(torch.tensor(group), torch.tensor(valid).bool()), torch.tensor(x), prior)
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx(expected, rel=1e-15)


def test_the_weight_of_the_other_groups_by_hand() -> None:
    """Within: (1 + 1) / (3 − 2). Between: 4² + 4² over 2 − 1, less within · (1/2 + 1) / 2."""
    groups = Groups.of(torch.tensor([0, 0, 1]), torch.ones(3).bool())
    assert prior_weight(groups, torch.tensor([1.0, 3, 10])) == pytest.approx(2 / 30.5, rel=1e-15)
    assert prior_weight(groups, torch.tensor([1.0, 3, 2])) == math.inf  # no more than chance
    groups = Groups.of(torch.arange(14) // 7, torch.ones(14).bool())  # seven times 0.1 does not average to 0.1
    assert prior_weight(groups, torch.tensor([0.1] * 7 + [0.3] * 7, dtype=torch.float64)) == 0


def test_packed_rows_by_hand() -> None:
    places = masked.inside(torch.tensor([2, 0, 3]))
    assert places.tolist() == [[True, True, False], [False] * 3, [True] * 3]
    rows = masked.unpacked(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), places)
    assert rows.tolist() == [[1, 2, 0], [0, 0, 0], [3, 4, 5]]


def test_packed_rows_go_back_again_with_holes_and_more_axes() -> None:
    places = torch.rand(4, 6) > 0.4
    values = torch.randn(int(places.sum()), 3)
    assert torch.equal(masked.unpacked(values, places)[places], values)


def test_the_gradient_of_every_value_comes_back_to_its_place() -> None:
    places, values = masked.inside(torch.tensor([3, 1])), torch.randn(4, requires_grad=True)
    weight = torch.tensor([[1.0, 2.0, 3.0], [4.0, 99.0, 99.0]])
    (masked.unpacked(values, places) * weight).sum().backward()
    assert values.grad is not None and values.grad.tolist() == [1, 2, 3, 4]
