"""The softmax's Triton kernel through Triton's interpreter. Run by `test_softmax_triton`: TRITON_INTERPRET counts only
where it was set before Triton was imported.
"""

import math
import warnings

import numpy as np
import pytest
import torch
from torch import Tensor
from triton.runtime.interpreter import InterpreterBuilder

from naive_head import naive_stats
from tokenpo.core.head import softmax, softmax_triton
from tokenpo.core.head import softmax as backend

INF = math.inf


@pytest.fixture(autouse=True)
def card(monkeypatch):
    """A card's maximum drops a NaN where the kernel does not ask for it; the interpreter's keeps every NaN."""
    monkeypatch.setattr(InterpreterBuilder, "create_maxnumf", lambda self, a, b: self.binary_op(a, b, np.fmax))


def rows(m: int, v: int, dtype: torch.dtype) -> Tensor:
    """Logits of all sizes; some tokens are excluded, in one row all that are looked at first."""
    z = 5 * torch.randn(m, v, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    z[0] += 300
    z[1, v // 3] = -INF
    z[2, : v - 2] = -INF
    return z.to(dtype)


@pytest.mark.parametrize("v", [3, 17, 64, 20_000])
@pytest.mark.parametrize("per_token", [False, True])
def test_residual_and_statistics_are_the_naive_formula(v, per_token, monkeypatch):
    """V = 20,000 takes three blocks of a row, V = 64 exactly one."""
    monkeypatch.setattr(backend, "sums_for", lambda x, out: softmax_triton.sums)
    z = rows(5, v, torch.float64)
    y = torch.tensor([v - 1, 0, v - 1, v - 2, 1])
    scale = torch.linspace(0.5, 1.5, 5, dtype=torch.float64).unsqueeze(1) if per_token else 0.7
    wanted = naive_stats(z, y, scale, drift=True)
    p = (z * scale).softmax(-1)
    p[torch.arange(5), y] -= 1
    out = torch.empty_like(z)
    kept = z.clone()
    seen = backend.residual(z, y, scale, drift=True, out=out)
    assert torch.equal(z, kept)
    for ours, theirs in zip(seen[:3], wanted[:3], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(out, p, rtol=1e-11, atol=1e-14)
    assert isinstance(backend.residual(z, y, scale), softmax.RowStats), "in place"
    assert torch.equal(z, out)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gives_what_torch_gives_in_every_dtype(dtype):
    z = rows(4, 9_000, dtype)
    ours, theirs = torch.empty_like(z), torch.empty_like(z)
    seen, wanted = softmax_triton.sums(z, 1.3, ours, 5), softmax.sums(z.clone(), 1.3, theirs, 5)
    assert seen.dtype == torch.float32
    # Float32 sums of 9,000 in another order, of cancelling terms where a row is about sure.
    torch.testing.assert_close(seen, wanted, rtol=2e-6, atol=1e-6)
    # Triton's interpreter cuts to bf16 where a processor rounds.
    torch.testing.assert_close(ours, theirs, rtol=2e-6 if dtype == torch.float32 else 2**-7, atol=0)


def test_rows_may_lie_apart_and_none_is_none():
    wider = rows(4, 40, torch.float64)
    z, out = wider[:, 23:], torch.full((4, 30), 7.0, dtype=torch.float64)
    ours = softmax_triton.sums(z, 1.0, out[:, :17], 3)
    dense = torch.empty(4, 17, dtype=torch.float64)
    torch.testing.assert_close(ours, softmax.sums(z, 1.0, dense, 3), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(out[:, :17], dense, rtol=1e-13, atol=0)
    assert (out[:, 17:] == 7).all()
    assert softmax_triton.sums(z[:0], 1.0, out[:0, :17], 5).shape == (5, 0, 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_passes_the_comparison_before_its_first_use(dtype):
    """With excluded tokens and a NaN: otherwise no card would ever take it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "tokenpo")
        assert backend.trusted(softmax_triton.sums, torch.device("cpu"), dtype) is softmax_triton.sums


def test_a_row_without_a_token_is_nan_as_in_torch():
    z = torch.stack([torch.full((9_000,), -INF), torch.zeros(9_000)])
    for sums in (softmax_triton.sums, softmax.sums):
        p = torch.empty_like(z)
        s = sums(z, 1.0, p, 3)[1, :, 0]
        assert (s.log2() + p.sum(1)).isnan().tolist() == [True, False]
