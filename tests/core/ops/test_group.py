"""Group statistics by hand: any ids, rows in any order, rows that do not count."""

from __future__ import annotations

import pytest
import torch

from tokenpo.core.ops.group import Groups

# Groups 70: rows 0, 2, 5 (row 5 does not count); 3: rows 1, 4; 9: row 3 alone; 11: row 6, which does not count.
IDS = torch.tensor([70, 3, 70, 9, 3, 70, 11])
VALID = torch.tensor([True, True, True, True, True, False, False])
X = torch.tensor([1.0, 10.0, 4.0, 7.0, 20.0, 1000.0, 500.0], dtype=torch.float64)


@pytest.fixture
def groups() -> Groups:
    return Groups.of(IDS, VALID)


def test_ids_become_dense(groups: Groups) -> None:
    """Sorted ids 3, 9, 11, 70 become 0..3."""
    assert groups.count == 4
    assert groups.index.tolist() == [3, 0, 3, 1, 0, 3, 2]


def test_sum_goes_back_to_every_row(groups: Groups) -> None:
    """70: 1 + 4; 3: 10 + 20; 9: 7; 11: nobody counts, 0. Row 5 sees its group's figure without being in it."""
    assert groups.sum(X).tolist() == [5, 30, 5, 7, 30, 5, 0]


def test_sum_by_position(groups: Groups) -> None:
    """Two positions at once: the second is minus the first."""
    seen = groups.sum(torch.stack([X, -X], 1))
    assert seen.shape == (7, 2)
    assert seen[:, 0].tolist() == [5, 30, 5, 7, 30, 5, 0]
    assert seen[:, 1].tolist() == [-5, -30, -5, -7, -30, -5, 0]


def test_one_merges_all(groups: Groups) -> None:
    """1 + 10 + 4 + 7 + 20 = 42 over the five rows that count."""
    merged = groups.one()
    assert merged.count == 1
    assert merged.sum(X).tolist() == [42.0] * 7
    assert merged.size().tolist() == [5] * 7


def test_extremes(groups: Groups) -> None:
    low, high = groups.extremes(X)
    assert low.tolist() == [1, 10, 1, 7, 10, 1, float("inf")]
    assert high.tolist() == [4, 20, 4, 7, 20, 4, float("-inf")]


def test_median(groups: Groups) -> None:
    """70: (1 + 4) / 2; 3: (10 + 20) / 2; 9: 7; 11: nobody counts."""
    assert groups.median(X).tolist() == [2.5, 15, 2.5, 7, 15, 2.5, float("inf")]


def test_median_of_odd_and_even_numbers_of_rows() -> None:
    """0: 5, 1, 9 and a row of 100 that does not count: 5. 1: 8, 2, 4, 2: (2 + 4) / 2 = 3."""
    ids = torch.tensor([0, 1, 0, 1, 1, 0, 1, 0])
    valid = torch.tensor([True, True, True, True, True, True, True, False])
    x = torch.tensor([5, 8, 1, 2, 4, 9, 2, 100])
    assert Groups.of(ids, valid).median(x).tolist() == [5, 3, 5, 3, 3, 5, 3, 5]
    large = Groups.of(ids, valid).median(x + 2**24)  # 2^24 + 1 is no float32
    assert (large - 2**24).tolist() == [5, 3, 5, 3, 3, 5, 3, 5]


def test_varied_needs_two_values_in_rows_that_count(groups: Groups) -> None:
    assert groups.varied(X).tolist() == [True, True, True, False, True, False, False]
    equal = torch.tensor([1.0, 2.0, 1.0, 3.0, 2.0, 9.0, 9.0])  # only row 5, which does not count, differs in 70
    assert not groups.varied(equal).any()


def test_above_mean_by_hand(groups: Groups) -> None:
    """70: 1 and 4 about 2.5; 3: 10 and 20 about 15; 9 stands alone; rows that do not count are above nothing."""
    assert groups.above_mean(X).tolist() == [False, False, True, False, True, False, False]
    assert not groups.above_mean(torch.tensor([1.0, 2.0, 1.0, 3.0, 2.0, 9.0, 9.0])).any()


def test_equal_values_are_not_above_their_mean() -> None:
    """Three times 0.1 is not 0.3: the mean of equal numbers may round below them. A value at the mean is not above."""
    groups = Groups.of(torch.tensor([0, 0, 0]), torch.ones(3, dtype=torch.bool))
    for value in (0.1, 0.7, 1e-3):
        assert not groups.above_mean(torch.full((3,), value, dtype=torch.float64)).any()
    assert groups.above_mean(torch.tensor([1.0, 2.0, 3.0])).tolist() == [False, False, True]


def test_mean_std_by_hand(groups: Groups) -> None:
    """70: mean 2.5, deviations ±1.5, ddof 1: sqrt(4.5 / 1). 3: mean 15, sqrt(50). 9: one row: 0. 11: none: 0 and 0."""
    mean, std = groups.mean_std(X)
    assert mean.tolist() == [2.5, 15, 2.5, 7, 15, 2.5, 0]
    a, b = 4.5**0.5, 50**0.5
    assert std.tolist() == pytest.approx([a, b, a, 0, b, a, 0], rel=1e-15)


def test_weighted_mean_std_by_hand(groups: Groups) -> None:
    """70 with weights 1 and 3: mean (1 + 12) / 4 = 13/4, variance (1·(9/4)² + 3·(3/4)²) / 4 = (81 + 27)/64 = 27/16.

    3 with weights 2 and 2: mean 15, variance 25.
    """
    weight = torch.tensor([1, 2, 3, 5, 2, 100, 100])
    mean, std = groups.mean_std(X, weight=weight, correction=0)
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


def test_order_of_rows_and_names_of_groups_are_free(groups: Groups) -> None:
    order = torch.tensor([6, 3, 0, 5, 1, 4, 2])
    other = Groups.of((IDS * 31 + 7)[order], VALID[order])
    assert torch.equal(other.sum(X[order]), groups.sum(X)[order])
    assert torch.equal(other.extremes(X[order])[0], groups.extremes(X)[0][order])
    assert torch.equal(other.median(X[order]), groups.median(X)[order])
