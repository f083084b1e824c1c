"""Nearest-rank quantiles: by hand, against NumPy's sort, and of values spread over ranks."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch import Tensor

from tokenpo.base.errors import TokenPOError
from tokenpo.core.ops import ranked

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
    assert float(ranked.quantile(torch.tensor(values), q)) == expected


@pytest.mark.parametrize("q", [-0.01, 1.01, NAN])
def test_quantile_refuses_q_outside(q: float) -> None:
    with pytest.raises(TokenPOError, match=rf"quantile q = {q} lies outside \[0, 1\]"):
        ranked.quantile(torch.ones(3), q)


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (torch.ones(2, 2), r"flat tensor of floats, got torch.float32 of shape \[2, 2\]"),
        (torch.tensor(1.0), r"flat tensor of floats, got torch.float32 of shape \[\]"),
        (torch.arange(3), r"flat tensor of floats, got torch.int64 of shape \[3\]"),
        (torch.ones(0), r"at least one value, got shape \[0\]"),
    ],
)
def test_quantile_refuses_what_has_no_order_or_is_empty(x: torch.Tensor, said: str) -> None:
    with pytest.raises(TokenPOError, match=said):
        ranked.quantile(x, 0.5)


@pytest.mark.parametrize("rank", [-1, 3])
def test_there_are_as_many_places_as_values(rank: int) -> None:
    with pytest.raises(TokenPOError, match=f"rank {rank} lies outside 0 to 2, the places of 3 values"):
        ranked.smallest(torch.ones(3), rank)


@pytest.mark.parametrize(("q", "expected"), [(0.0, [1, 2, 7]), (0.4, [3, 2, 7]), (0.75, [4, 9, 8]), (1.0, [5, 9, 8])])
def test_row_quantile_is_the_nearest_rank_of_each_row(q: float, expected: list[float]) -> None:
    """Ranks round(q (n − 1)) of 5, 2 and 2 values, halves to even: 0.4 → 1.6 → 2, 0.4 → 0; 0.75 → 3, 0.75 → 1."""
    x = torch.tensor([[5.0, 3, 1, 4, 2], [9, 2, NAN, NAN, NAN], [NAN, 8, NAN, 7, NAN]])
    wanted = torch.tensor(expected, dtype=torch.float32)
    torch.testing.assert_close(ranked.row_quantile(x, ~x.isnan(), q)[:, 0], wanted)


@pytest.mark.parametrize("q", [0.0, 0.035, 0.25, 0.5, 0.8, 0.95, 1.0])
@pytest.mark.parametrize("t", [1, 2, 3, 11, 40])
def test_row_quantile_is_found_in_the_sorted_row(q: float, t: int) -> None:
    """Of rows with any number of entries, many of them equal, between other rows' padding."""
    generator = torch.Generator().manual_seed(t)
    x = torch.randint(0, 9, (64, t), generator=generator).float()
    mask = torch.rand(64, t, generator=generator) < torch.linspace(0, 1, 64)[:, None]
    found = ranked.row_quantile(x.masked_fill(~mask, NAN), mask, q)
    for row, kept, seen in zip(x, mask, found[:, 0].tolist(), strict=True):
        ascending = sorted(row[kept].tolist())
        assert seen == (ascending[round(q * (len(ascending) - 1))] if ascending else INF)


@pytest.mark.parametrize("q", [0.4, 0.9])
def test_row_quantile_of_nothing_is_above_everything(q: float) -> None:
    x = torch.zeros(1, 3)
    assert ranked.row_quantile(x, torch.zeros(1, 3, dtype=torch.bool), q).tolist() == [[INF]]
    with pytest.raises(TokenPOError, match=r"1\.5"):
        ranked.row_quantile(x, x == 0, 1.5)


def test_row_quantile_ranks_in_double_precision() -> None:
    """0.035 · 300 is 10.500000000000002 in float64, rank 11; in float32 it is 10.5, which rounds to the even 10."""
    x = torch.arange(301.0)[None]
    assert ranked.row_quantile(x, x >= 0, 0.035).tolist() == [[11.0]]
    assert ranked.quantile(x[0], 0.035) == 11


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


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for millions, from a thousand values on, with blocks that do not divide them."""
    monkeypatch.setattr(ranked, "_SMALL", 16)
    monkeypatch.setattr(ranked, "_SAMPLE", 250)
    monkeypatch.setattr(ranked, "_BLOCK", 264)
    monkeypatch.setattr(ranked, "_COUNTED_BLOCK", 300)


@pytest.mark.usefixtures("small_sample")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["normal", "positive", "ties", "odd"])
@pytest.mark.parametrize("count", [3, 40, 500, 3001])  # left to torch, counted, narrowed by a small sample, a large one
def test_every_way_is_the_sorted_place(count: int, kind: str, dtype: torch.dtype) -> None:
    x = values(kind, count, dtype)
    for rank in sorted({0, 1, count // 3, count // 2, count - 2, count - 1}):
        seen = ranked.smallest(x, rank)
        assert seen.dtype == dtype and seen.shape == ()
        assert same(seen, by_numpy(x, rank)), (rank, float(seen))


@pytest.mark.usefixtures("small_sample")
def test_neighbours_in_the_last_bit_are_told_apart() -> None:
    """1 + k 2^-52 for k = 0..1999, shuffled: the value with place 1234 is 1 + 1234 · 2^-52."""
    order = torch.randperm(2000, generator=torch.Generator().manual_seed(0))
    x = 1 + order.double() * 2.0**-52
    assert float(ranked.smallest(x, 1234)) == 1 + 1234 * 2.0**-52
    assert float(ranked.smallest(-x, 1234)) == -(1 + 765 * 2.0**-52)


@pytest.mark.usefixtures("small_sample")
@pytest.mark.parametrize("kind", ["normal", "positive", "ties"])
def test_a_sample_suffices_for_what_is_in_no_order(kind: str) -> None:
    x = values(kind, 3001, torch.float32)
    for rank in (0, 700, 3000):
        found = ranked._between(x, rank, 3001, None)
        assert found is not None and same(found, by_numpy(x, rank))


@pytest.mark.usefixtures("small_sample")
@pytest.mark.parametrize("wrong", [-1.0, 1.0])
def test_a_sample_that_misleads_costs_time_only(wrong: float) -> None:
    """Of 3003 values every 13th is seen first, (3003 // 250) | 1 = 13; those say nothing of the others."""
    x = torch.linspace(2, 3, 3003) * -wrong
    x[::13] = wrong
    assert ranked._between(x, 1500, 3003, None) is None
    assert same(ranked.smallest(x, 1500), by_numpy(x, 1500))


@pytest.mark.usefixtures("small_sample")
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
    assert ranked.largest(x.masked_fill(~mask, INF), mask, count).tolist() == sorted(order.tolist())


def test_the_largest_of_fewer_are_all() -> None:
    assert ranked.largest(torch.tensor([1.0, -INF, NAN, 2.0]), torch.tensor([True, True, True, False]), 5).tolist() == [
        0,
        1,
    ]


@pytest.mark.usefixtures("small_sample")
def test_the_largest_do_not_rest_on_the_sample() -> None:
    """Of 3003 values every 189th is seen first, (3003 // 16 + 1) | 1 = 189, and only those are large: the floor that
    they suggest keeps too few of the others."""
    x = torch.linspace(0, 1, 3003)
    x[::189] = 5.0
    wanted = np.argsort(-x.numpy(), kind="stable")[:100]
    assert ranked.largest(x, torch.ones(3003, dtype=torch.bool), 100).tolist() == sorted(wanted.tolist())


@pytest.mark.usefixtures("small_sample")
def test_ties_need_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the sample's bounds agree, the value is known once its places are counted."""
    x = torch.cat([torch.zeros(2000), torch.linspace(1, 2, 1000)])
    looked: list[int] = []
    counted = ranked._counted
    monkeypatch.setattr(ranked, "_counted", lambda x, *rest: looked.append(len(x)) or counted(x, *rest))
    assert float(ranked.quantile(x, 0.5)) == 0.0
    assert max(looked) < 300  # the sample alone


class Together:
    """A sum over ranks that are threads, all of which must come with counts of the same shape."""

    def __init__(self, ranks: int) -> None:
        self.barrier, self.given = threading.Barrier(ranks, timeout=60), dict[int, Tensor]()

    def __call__(self, rank: int, counts: Tensor) -> Tensor:
        assert counts.dtype == torch.int64
        self.given[rank] = counts
        self.barrier.wait()
        total = torch.stack([self.given[other] for other in sorted(self.given)]).sum(0)
        self.barrier.wait()
        return total


def over_ranks(parts: list[Tensor], q: float) -> list[Tensor]:
    """What every rank finds, given its part."""
    together, found = Together(len(parts)), dict[int, Tensor]()

    def work(rank: int) -> None:
        try:
            found[rank] = ranked.quantile(parts[rank], q, lambda counts: together(rank, counts))
        except BaseException:
            together.barrier.abort()
            raise

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(parts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(len(parts))]


@pytest.mark.usefixtures("small_sample")
@pytest.mark.parametrize("kind", ["normal", "odd"])
@pytest.mark.parametrize("sizes", [[12, 0, 3], [1500, 1, 900, 0], [0, 2600]])
@pytest.mark.parametrize("q", [0.0, 0.3, 0.8, 1.0])
def test_ranks_find_the_quantile_of_all_their_values(sizes: list[int], kind: str, q: float) -> None:
    x = values(kind, sum(sizes), torch.float32)
    wanted = by_numpy(x, ranked.nearest_rank(q, len(x)))
    assert all(same(seen, wanted) for seen in over_ranks(list(x.split(sizes)), q))


def test_no_values_on_any_rank() -> None:
    with pytest.raises(TokenPOError, match="at least one value"):
        ranked.quantile(torch.ones(0), 0.5, lambda counts: counts)


def test_counts_go_through_torch_distributed(tmp_path) -> None:
    """Its sum, here of a single rank, takes and gives back what is needed."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:

        def all_ranks(counts: Tensor) -> Tensor:
            dist.all_reduce(counts)
            return counts

        x = values("normal", 501, torch.float32)
        assert same(ranked.quantile(x, 0.25, all_ranks), by_numpy(x, 125))  # 0.25 · 500
    finally:
        dist.destroy_process_group()


def test_a_quantile_carries_no_gradient() -> None:
    assert not ranked.quantile(torch.ones(3, requires_grad=True), 0.5).requires_grad
