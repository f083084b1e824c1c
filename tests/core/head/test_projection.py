"""The head in both directions: gradients of a few rows added up, and rows moved together in place."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from tokenpo.core.head import projection
from tokenpo.core.head.projection import HeadGradient, chunk_rows, keep_rows_, logits_of


def test_a_chunk_is_sixteen_megabytes_and_at_least_512_rows(monkeypatch):
    """On a card a 32nd of its memory, used or not: 2.5 GiB of 80."""
    cpu, card, half = torch.device("cpu"), torch.device("cuda"), torch.bfloat16
    assert chunk_rows(151936) == chunk_rows(151936, half, cpu) == 512
    assert chunk_rows(4096) * 4096 * 4 == chunk_rows(4096, half, cpu) * 4096 * 2 == 2**24
    memory = SimpleNamespace(total_memory=80 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: memory)
    assert 2.49 * 2**30 < chunk_rows(151936, half, card) * 151936 * 2 <= 2.5 * 2**30


def test_logits_go_to_the_first_rows_of_a_buffer():
    h, w, b = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5)
    buffer = torch.full((6, 5), 7.0)
    got = logits_of(h, w, b, buffer)
    assert got.data_ptr() == buffer.data_ptr() and (buffer[3:] == 7).all()
    torch.testing.assert_close(got, h @ w.t() + b)
    torch.testing.assert_close(logits_of(h, w, None), h @ w.t())


# With V < 2H the factor goes to w, otherwise to the hidden states.
@pytest.mark.parametrize("v", [5, 30])
@pytest.mark.parametrize("as_slice", [False, True])
@pytest.mark.parametrize("spend", [False, True])
def test_adds_the_gradient_of_some_rows(v, as_slice, spend):
    h, head, bias = (torch.randn(*s, dtype=torch.float64) for s in ((6, 4), (v, 4), (v,)))
    total = HeadGradient.start(h, head, bias, (True, True, True))
    at = slice(1, 4) if as_slice else torch.tensor([0, 3, 5])
    w, factor = torch.randn(3, v, dtype=torch.float64), torch.randn(3, 1, dtype=torch.float64)
    dz = w * factor
    for _ in range(2):
        total.add(at, w.clone(), factor, h[at], head, spend=spend)
    before = w.clone()
    total.add(at, w, factor, h[at], head, spend=False)
    assert torch.equal(w, before)
    wanted = torch.zeros_like(h)
    wanted[at] = dz @ head
    torch.testing.assert_close(total.hidden, wanted)
    torch.testing.assert_close(total.head, 3 * dz.t() @ h[at])
    torch.testing.assert_close(total.bias, 3 * dz.sum(0))


def test_half_precision_is_added_up_in_float32(monkeypatch):
    """1 and 300 times 2^-9: a bf16 sum would stay 1. In tiles of two rows of the head."""
    monkeypatch.setattr(projection, "_TILE", 2)
    h, head = torch.ones(1, 2, dtype=torch.bfloat16), torch.zeros(5, 2, dtype=torch.bfloat16)
    total = HeadGradient.start(h, head, None, (False, True, False))
    one, bit = torch.ones(1, 5, dtype=torch.bfloat16), torch.full((1, 5), 2.0**-9, dtype=torch.bfloat16)
    factor = torch.ones(1, 1)
    total.add(slice(0, 1), one, factor, h, head, spend=False)
    for _ in range(300):
        total.add(slice(0, 1), bit, factor, h, head, spend=False)
    assert total.head is not None and total.head.dtype == torch.float32
    assert (total.head == 1 + 300 * 2.0**-9).all()
    assert total.like(h, head, None)[1].dtype == torch.bfloat16


def test_halves_are_multiplied_into_the_wider_sum_where_torch_can(monkeypatch):
    """As on CUDA: a stand-in for that operator on a CPU sees the same arguments, checked against torch's own schema."""
    calls = []

    def product(total, a, b, out_dtype, *, beta=1, alpha=1, out):
        calls.append((a.dtype, out_dtype, beta))
        return out.copy_((total if beta else 0) + a.to(out_dtype) @ b.to(out_dtype))

    projection._adds_wide.cache_clear()
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("addmm.dtype_out", product, "CPU")
        h, head = torch.ones(1, 2, dtype=torch.bfloat16), torch.zeros(5, 2, dtype=torch.bfloat16)
        total = HeadGradient.start(h, head, None, (False, True, False))
        total.head.fill_(math.nan)
        for value in (1.0, 2.0**-9):
            w = torch.full((1, 5), value, dtype=torch.bfloat16)
            total.add(slice(0, 1), w, torch.ones(1, 1), h, head, spend=False)
    projection._adds_wide.cache_clear()
    assert calls[2:] == [(torch.bfloat16, torch.float32, 0), (torch.bfloat16, torch.float32, 1)]
    assert (total.head == 1 + 2.0**-9).all()


@pytest.mark.parametrize("columns", [3, 2**18])
def test_rows_move_to_the_top_of_the_same_memory(columns):
    """All at once, or with 2^18 columns two rows at a time."""
    rows = torch.tensor([0, 2, 3, 4, 6])
    w = torch.arange(7.0).unsqueeze(1).repeat(1, columns)
    kept = keep_rows_(w, rows)
    assert kept.data_ptr() == w.data_ptr() and kept.shape == (5, columns)
    assert kept[:, 0].tolist() == kept[:, -1].tolist() == [0, 2, 3, 4, 6]
    assert keep_rows_(w, torch.arange(7)).shape == (7, columns)
