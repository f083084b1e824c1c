"""Nearest-rank quantiles: exact at any size, of one tensor or of the values that several processes hold together.

A few values are left to torch. The bits of more are read as integers of the same order and counted sixteen at a time,
from the top: each round of counts says which bucket holds the rank, and only that bucket is looked at again. Counts of
disjoint values add up, so processes that sum theirs all find the value of that rank among the values of all. For many
values, a regular sample first tells between which two the rank must lie; one pass counts what lies below and keeps what
lies between. Should the sample mislead, which the counts show, the buckets are counted over everything.

Zeros of either sign are one value, +0; NaN of either sign is above +inf, as for `torch.sort`. Nothing carries a
gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ...base.errors import TokenPOError
from . import masked

# Counts [B] of this process, int64 -> their sum over all processes. Called equally often in each.
Reduce = Callable[[Tensor], Tensor]

_SMALL = 2**14
_SAMPLE = 2**19
# Values compared at once: what stays in a core's cache, or what keeps a GPU busy. Values counted at once: many more
# than there are buckets.
_BLOCK, _GPU_BLOCK = 2**17, 2**26
_COUNTED_BLOCK = 2**20
_DIGIT = 16
_INTEGERS = {16: torch.int16, 32: torch.int32, 64: torch.int64}


def nearest_rank(q: float, count: int) -> int:
    """Which of `count` values in ascending order, from 0, is their quantile: round(q (count − 1)), halves to even.

    >>> [nearest_rank(q, 5) for q in (0.0, 0.8, 0.9)]
    [0, 3, 4]
    """
    if not 0.0 <= q <= 1.0:
        raise TokenPOError(f"quantile q = {q} lies outside [0, 1]")
    return round(q * (count - 1))


def quantile(x: Tensor, q: float, reduce: Reduce | None = None) -> Tensor:
    """Nearest-rank quantile of a flat tensor x [M] of floats, as a tensor [].

    `torch.quantile` refuses more than 2^24 values and interpolates.

    Args:
        x: [M] of any float dtype, which is the quantile's too.
        q: in [0, 1].
        reduce: adds up counts over processes, for the quantile of the values of all; one of them may have none.

    Raises:
        TokenPOError: x is not flat or not of floats, there are no values at all, or q lies outside [0, 1].

    >>> quantile(torch.tensor([4.0, 1.0, 3.0, 2.0, 5.0]), 0.8)
    tensor(4.)
    """
    return smallest(x, nearest_rank(q, _total(x, reduce)), reduce)


def smallest(x: Tensor, rank: int, reduce: Reduce | None = None) -> Tensor:
    """The value of x [M] that has the given place, from 0, in ascending order: tensor [].

    Args:
        x: [M] of any float dtype, which is the value's too.
        rank: place among the values of all processes.
        reduce: as for `quantile`.

    Raises:
        TokenPOError: x is not flat or not of floats, or there is no such place.

    >>> smallest(torch.tensor([4.0, 1.0, 3.0]), 1)
    tensor(3.)
    """
    total, x = _total(x, reduce), x.detach().contiguous()
    if not 0 <= rank < total:
        raise TokenPOError(f"rank {rank} lies outside 0 to {total - 1}, the places of {total} values")
    found = None
    # Among several processes rounds of counts cost more than looks at values, and a sample adds rounds.
    if total > 4 * (_SMALL if reduce is None else _SAMPLE) and x.element_size() > 2:
        found = _between(x, rank, total, reduce)
    return _looked_up(x, rank, reduce) if found is None else found


def largest(x: Tensor, mask: Tensor, count: int) -> Tensor:
    """Places [count], ascending, of the largest values of x [M] where mask [M] is true; of equal ones the earlier.

    Args:
        x: [M] of any float dtype; NaN counts as nothing.
        mask: [M] bool.
        count: 1 or more; all there are, where they are fewer.

    >>> largest(torch.tensor([2.0, 3.0, 9.0, 2.0]), torch.tensor([True, True, False, True]), 2)
    tensor([0, 1])
    """
    places = ((x >= _floor(x, mask, count)) & mask).nonzero()[:, 0]
    if len(places) < count:
        places = ((x == x) & mask).nonzero()[:, 0]
    if len(places) <= count:
        return places
    values = x[places]
    least = smallest(values, len(values) - count)
    kept = values > least
    ties = (values == least).nonzero()[:, 0]
    kept[ties[: count - int(kept.count_nonzero())]] = True
    return places[kept]


def _floor(x: Tensor, mask: Tensor, count: int) -> float:
    """A value that at least `count` of the masked ones reach, going by a sample; −inf where that is too small."""
    step = (len(x) // _SMALL + 1) | 1
    sample = x[::step][mask[::step]]
    # How many of those `count` a random sample holds, plus three standard deviations, plus three.
    most = count / step + 3 * (count / step) ** 0.5 + 3
    return float(smallest(sample, len(sample) - int(most))) if most <= len(sample) else -math.inf


def row_quantile(x: Tensor, mask: Tensor, q: float) -> Tensor:
    """The same quantile of every row's true entries: [N, 1] of x [N, T]; +inf in a row that has none.

    >>> row_quantile(torch.tensor([[4.0, 1.0, 3.0], [2.0, 9.0, 9.0]]), torch.tensor([[1, 1, 1], [1, 0, 0]]).bool(), 0.4)
    tensor([[3.],
            [2.]])
    """
    t = x.shape[1]
    last = nearest_rank(q, t)  # in a full row; a shorter one has fewer entries below and above the rank
    count = masked.count(mask, 1)
    rank = (q * (count - 1).clamp(min=0).double()).round().long()
    # Only the entries from the nearer end are sorted: sorting all takes several times as long.
    above = 2 * last >= t
    place = (count - 1 - rank).clamp(min=0) if above else rank
    filled = x.masked_fill(~mask, -torch.inf if above else torch.inf)
    found = filled.topk(t - last if above else last + 1, 1, largest=above).values.gather(1, place)
    return found.masked_fill(count == 0, torch.inf)


def _total(x: Tensor, reduce: Reduce | None) -> int:
    """How many values all processes have together."""
    if x.dim() != 1 or not x.is_floating_point():
        raise TokenPOError(f"quantile needs a flat tensor of floats, got {x.dtype} of shape {list(x.shape)}")
    total = _summed(reduce, [len(x)], x.device)[0]
    if total == 0:
        raise TokenPOError("quantile needs a flat tensor with at least one value, got shape [0]")
    return total


def _summed(reduce: Reduce | None, counts: list[int], device: torch.device) -> list[int]:
    return counts if reduce is None else reduce(torch.tensor(counts, device=device)).tolist()


def _between(x: Tensor, rank: int, total: int, reduce: Reduce | None) -> Tensor | None:
    """The value at a rank, looked for only between two values of a sample; None where it is not between them."""
    # An odd step samples all columns of rows whose length is a power of two.
    sample = x[:: (total // (_SAMPLE if total > 4 * _SAMPLE else _SMALL)) | 1].contiguous()
    count = _summed(reduce, [len(sample)], x.device)[0]
    # Three standard deviations of the place in a random sample.
    middle, slack = rank * count // total, int(1.5 * count**0.5) + 1
    low = float(_looked_up(sample, middle - slack, reduce)) if middle >= slack else -math.inf
    high = float(_looked_up(sample, middle + slack, reduce)) if middle + slack < count else math.inf
    below, inside = _narrowed(x, low, high)
    before, among = _summed(reduce, [below, len(inside)], x.device)
    if not before <= rank < before + among:
        return None
    # Most of the values may be ties, which need no further look.
    return x.new_tensor(low) + 0.0 if low == high else _looked_up(inside, rank - before, reduce)


def _narrowed(x: Tensor, low: float, high: float) -> tuple[int, Tensor]:
    """How many values of x [M] lie below `low`, and the values from `low` to `high`."""
    size = _BLOCK if x.device.type == "cpu" else _GPU_BLOCK
    whole = len(x) // 8 * 8
    tail = x[whole:]
    below, near = int((tail < low).count_nonzero()), [tail]
    # Flags as floats, which torch writes, and sums over the eight rows, with vector instructions; bytes it does not.
    flags = x.new_empty(min(size, whole), dtype=torch.float32)
    for block in x[:whole].split(size):
        eight, out = block.view(8, -1), flags[: len(block)].view(8, -1)
        under, upto = torch.lt(eight, low, out=out).sum(0), torch.le(eight, high, out=out).sum(0)
        below += int(under.sum())
        near.append(eight.index_select(1, (under != upto).nonzero()[:, 0]).flatten())
    found = torch.cat(near)
    return below, found[(found >= low) & (found <= high)]


def _looked_up(x: Tensor, rank: int, reduce: Reduce | None) -> Tensor:
    """The value at a rank, without a sample."""
    if reduce is None and len(x) <= _SMALL:
        return torch.kthvalue(x, rank + 1).values + 0.0
    return _counted(x, rank, reduce)


def _counted(x: Tensor, rank: int, reduce: Reduce | None) -> Tensor:
    """The value at a rank, by counting sixteen bits at a time."""
    width, key, rest = 8 * x.element_size(), 0, x
    for shift in range(width - _DIGIT, -1, -_DIGIT):
        blocks = rest.split(_COUNTED_BLOCK if x.device.type == "cpu" else _GPU_BLOCK)
        counts = sum(torch.bincount(_digit(block, shift), minlength=2**_DIGIT) for block in blocks)
        assert isinstance(counts, Tensor)  # split gives one block at least
        upto = (counts if reduce is None else reduce(counts)).cumsum(0)
        digit = int(torch.searchsorted(upto, rank, right=True))
        rank -= int(upto[digit - 1]) if digit else 0
        key = key << _DIGIT | digit
        if shift:
            rest = torch.cat([block[_digit(block, shift) == digit] for block in blocks])
    ordered = key - 2 ** (width - 1)
    bits = ordered if ordered >= 0 else ordered ^ (2 ** (width - 1) - 1)
    return torch.tensor(bits, dtype=_INTEGERS[width], device=x.device).view(x.dtype)


def _digit(x: Tensor, shift: int) -> Tensor:
    """Sixteen bits, from `shift` on, of integers >= 0 that are ordered as x is."""
    width = 8 * x.element_size()
    x = torch.where(x == x, x + 0.0, torch.nan)
    bits = x.view(_INTEGERS[width])
    # Of negative floats a larger magnitude is less.
    ordered = bits ^ ((bits >> (width - 1)) & (2 ** (width - 1) - 1))
    digit = (ordered >> shift).to(torch.int32) & (2**_DIGIT - 1)
    return digit ^ 2 ** (_DIGIT - 1) if shift == width - _DIGIT else digit
