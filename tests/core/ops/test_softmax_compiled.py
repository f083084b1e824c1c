"""The residual in C beside the formula in float64, and what must survive rounding."""

from __future__ import annotations

import fcntl
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tokenpo.core.ops import softmax
from tokenpo.core.ops.token_stats import naive_stats

try:
    from tokenpo.core.ops import softmax_compiled as compiled
except ImportError as error:
    pytest.skip(f"the compiled softmax did not run: {error}", allow_module_level=True)

INF = math.inf


def rows(m: int, v: int, dtype: torch.dtype) -> Tensor:
    """Logits of all sizes; a few tokens are excluded, in one row all but two."""
    z = 5 * torch.randn(m, v, generator=torch.Generator().manual_seed(v), dtype=torch.float64)
    z[0] += 300
    z[1, v // 3] = -INF
    z[2, : v - 2] = -INF
    return z.to(dtype)


@pytest.mark.parametrize("v", [3, 17, 64, 1023, 1024, 1025, 5000])
@pytest.mark.parametrize("per_token", [False, True])
@pytest.mark.parametrize("drift", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_residual_and_statistics_are_the_naive_formula(v, per_token, drift, dtype):
    """Rows shorter and longer than what is summed at once, more than are worked on together, targets in every part."""
    m = 19
    z = rows(m, v, dtype)
    y = torch.tensor([v - 1, 0, v - 1, v - 2, 1, v // 2, min(v - 1, 1023), min(v - 1, 1024)]).repeat(3)[:m]
    scale = torch.linspace(0.5, 1.5, m).unsqueeze(1) if per_token else 0.7
    exact = scale.double() if isinstance(scale, Tensor) else scale
    wanted = naive_stats(z.double(), y, exact, drift=True)
    p = (z.double() * exact).softmax(-1)
    p[torch.arange(m), y] -= 1
    out, kept = torch.empty_like(z), z.clone()
    seen = compiled.residual(z, y, scale, drift, out)
    assert torch.equal(z, kept)
    # log2 e / T and its product with z - m are rounded to 24 bits: of a d up to 65, e^d is off by 65 · 2^-23 at most.
    torch.testing.assert_close(seen.logprob.double(), wanted.logprob, rtol=3e-7, atol=1e-6)
    # An entropy of a hundredth is what is left of terms that are off by as much.
    torch.testing.assert_close(seen.entropy.double(), wanted.entropy, rtol=2e-5, atol=1e-7)
    if drift:
        torch.testing.assert_close(seen.drift.double(), wanted.entropy_drift, rtol=2e-5, atol=1e-7)
    else:
        assert len(seen.drift) == 0
    narrow = 8e-6 if dtype == torch.float32 else 2**-8
    # Below 2^-126 there is nothing.
    torch.testing.assert_close(out.double(), p, rtol=narrow, atol=2**-125)
    again = compiled.residual(z, y, scale, drift, z)
    assert torch.equal(z, out), "in place"
    assert all(torch.equal(x, same) for x, same in zip(again, seen, strict=True))


@pytest.mark.parametrize("drift", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_is_the_same_wherever_it_stands(drift, dtype):
    m, v = 37, 65
    z, y = rows(m, v, dtype), torch.arange(m)
    every = compiled.residual(z, y, 0.7, drift, left := torch.empty_like(z))
    for rows_ in (torch.arange(m - 1, -1, -1), torch.tensor([5]), torch.arange(3, 24)):
        stats = compiled.residual(z[rows_], y[rows_], 0.7, drift, alone := torch.empty_like(z[rows_]))
        assert torch.equal(alone, left[rows_])
        assert all(torch.equal(x, same[rows_]) for x, same in zip(stats[: 2 + drift], every, strict=False))


def test_powers_of_two_have_their_24_bits():
    """Two logits apart by d: p of the lesser is 1 / (1 + e^d), for d where it is a normal float32."""
    d = torch.linspace(0, 87, 40_001)
    z = torch.stack([d, torch.zeros_like(d)], 1)
    out = torch.empty_like(z)
    compiled.residual(z, torch.zeros(len(d), dtype=torch.long), 1.0, False, out)
    wanted = 1 / (1 + d.double().exp())
    # log2 e and its product with d are rounded to 24 bits, so e^d is off by d · 2^-23 and its own rounding.
    bound = (d.double() * 2**-23 + 2**-22) * wanted
    assert ((out[:, 1].double() - wanted).abs() <= bound).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_largest_of_negative_logits_is_found(dtype):
    """Their bits grow as they fall: from above 2 to below 2, and from one exponent to the next."""
    z = torch.tensor([[-300.0, -0.5, -1.5, -301.0, -0.75], [-90.0, -301.0, -88.5, -89.0, -91.0]]).to(dtype)
    wanted = z.double().log_softmax(-1)
    stats = compiled.residual(z.clone(), torch.tensor([1, 3]), 1.0, False, torch.empty_like(z))
    assert stats.logprob.tolist() == pytest.approx([float(wanted[0, 1]), float(wanted[1, 3])], rel=1e-6)


def test_a_sum_of_many_keeps_its_bits():
    """100,000 terms of one size: 1,600 to each of 64 lanes would be off by more than a few roundings."""
    z = torch.rand(4, 100_003, generator=torch.Generator().manual_seed(0))
    wanted = z.double().softmax(-1)
    stats = compiled.residual(z, torch.tensor([0, 5_000, 50_000, 100_002]), 1.0, False, z)
    z[torch.arange(4), torch.tensor([0, 5_000, 50_000, 100_002])] += 1
    worst = ((z.double() - wanted).abs() / wanted)[:, 1:4_999].amax()
    assert worst <= 4 * 2**-24
    entropy = -(wanted * wanted.log()).sum(-1)
    torch.testing.assert_close(stats.entropy.double(), entropy, rtol=1e-7, atol=0)


def test_next_to_nothing_keeps_its_bits_where_the_target_is_almost_certain():
    """1 - p_y = 3 e^-30 / (1 + 3 e^-30) is 2.8e-13: 1 + that is 1 in float32, and so is s."""
    z = torch.tensor([[30.0, 0.0, 0.0, 0.0]])
    stats = compiled.residual(z, torch.tensor([0]), 1.0, False, z)
    others = 3 * math.exp(-30)
    rest = others / (1 + others)
    assert float(z[0, 0]) == pytest.approx(-rest, rel=1e-5)
    assert float(stats.logprob) == pytest.approx(-math.log1p(others), rel=1e-5)
    assert float(stats.entropy) == pytest.approx(math.log1p(others) + 30 * rest, rel=1e-5)


@pytest.mark.parametrize("v", [60, 5000])
@pytest.mark.parametrize("target", [7, 0])
@pytest.mark.parametrize("peaks", [1, 2])
def test_what_is_left_beside_a_peak_keeps_its_bits_whoever_is_the_target(v, target, peaks):
    """e^-15 is 3e-7: added to a 1, which has steps of 1.2e-7, up to a fifth of each would be lost.

    log2 e and its product with 15 are rounded to 24 bits, so that e^-15 is off by 15 · 2^-23 = 2e-6 at most.
    """
    z = torch.full((1, v), -15.0)
    z[0, 7 : 7 + peaks] = 0
    stats = compiled.residual(z, torch.tensor([target]), 1.0, False, z)
    rest = (v - peaks) * math.exp(-15)
    s = peaks + rest
    assert float(stats.entropy) == pytest.approx(math.log(peaks) + math.log1p(rest / peaks) + 15 * rest / s, rel=4e-6)
    own = math.exp(-15) if target == 0 else 1
    assert float(stats.logprob) == pytest.approx(math.log(own) - math.log(s), rel=4e-6)
    assert float(z[0, target]) == pytest.approx((own - s) / s, rel=4e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_excluded_tokens_and_broken_rows_are_what_torch_makes_of_them(dtype):
    nan = math.nan
    z = torch.tensor(
        [[-INF, 1.0, -INF], [-INF] * 3, [0.0, nan, 1.0], [0.0, -nan, 1.0], [0.0, INF, 1.0], [-200.0, 0.0, 1.0]]
    ).to(dtype)
    y = torch.tensor([0, 1, 0, 0, 0, 0])
    ours, theirs = z.clone(), z.clone()
    seen = compiled.residual(ours, y, 1.0, True, ours)
    wanted = softmax.residual(theirs, y, 1.0, True, theirs)
    assert seen.logprob[0] == -INF
    assert ours[0].tolist() == [-1.0, 1.0, 0.0]
    assert ours[1:5].isnan().all()
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-37, equal_nan=True)
    for x, other in zip(seen, wanted, strict=True):
        torch.testing.assert_close(x, other, rtol=1e-6, atol=1e-30, equal_nan=True)


@pytest.mark.parametrize("bits", [0x7FFF, -1, 0x7F81, -0x7F])
def test_one_nan_of_any_bits_makes_its_row_nan(bits):
    """All set, the sign with them, and the lowest of a signalling one."""
    z = torch.zeros(2, 40, dtype=torch.bfloat16)
    z.view(torch.int16)[0, 3] = bits
    assert z[0, 3].isnan()
    stats = compiled.residual(z, torch.tensor([0, 3]), 1.0, False, z)
    assert z[0].isnan().all() and stats.entropy[0].isnan()
    assert z[1].isfinite().all() and stats.entropy[1].isfinite()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_may_lie_apart_and_none_is_none(dtype):
    wider = rows(4, 40, dtype)
    z, out = wider[:, 23:], torch.full((4, 30), 7.0, dtype=dtype)
    y = torch.tensor([0, 16, 16, 15])
    dense = z.contiguous()
    wanted = compiled.residual(dense, y, 1.0, False, dense)
    seen = compiled.residual(z, y, 1.0, False, out[:, :17])
    assert torch.equal(seen.logprob, wanted.logprob)
    assert torch.equal(out[:, :17], dense)
    assert (out[:, 17:] == 7).all()
    assert compiled.residual(z[:0], y[:0], 1.0, True, out[:0, :17]).drift.shape == (0,)


@pytest.mark.parametrize(("m", "v"), [(300, 1500), (7, 20_000)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_number_of_threads_changes_no_bit(m, v, dtype):
    """Nor that threads of few rows take fewer at a time."""
    z, y = rows(m, v, dtype), torch.arange(m) * 5
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            left = z.clone()
            found.append((*compiled.residual(left, y, 1.0, True, left), left))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(x, first) for x, first in zip(other, found[0], strict=True))


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_other_defaults_of_torch_change_nothing(default):
    z, y = rows(8, 50, torch.float32), torch.arange(8)
    left, other = z.clone(), z.clone()
    wanted = compiled.residual(left, y, 2.0, True, left)
    torch.set_default_dtype(default)
    try:
        with torch.device("meta"):
            # A target of fewer bits and a scale without a fraction are the same ones.
            seen = compiled.residual(other, y.int(), 2, True, other)
    finally:
        torch.set_default_dtype(torch.float32)
    assert all(torch.equal(x, first) for x, first in zip((*seen, other), (*wanted, left), strict=True))


def test_one_scale_is_that_of_every_row_and_targets_are_as_many_as_rows():
    z, y = rows(8, 50, torch.float32), torch.arange(8)
    wanted = compiled.residual(z, y, 0.5, False, torch.empty_like(z))
    seen = compiled.residual(z, y, torch.tensor([[0.5]]), False, torch.empty_like(z))
    assert torch.equal(seen.logprob, wanted.logprob)
    with pytest.raises(RuntimeError, match="shape"):
        compiled.residual(z, y[:5], 0.5, False, torch.empty_like(z))


def test_what_is_overwritten_is_so_to_autograd():
    a = torch.zeros(2, 3, requires_grad=True)
    logits = a.exp()
    compiled.residual(logits.detach(), torch.tensor([0, 1]), 1.0, False, logits.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        logits.sum().backward()


@pytest.mark.parametrize("target", [-1, 17, 2**40])
def test_a_target_outside_the_vocabulary_writes_nowhere(target):
    z = torch.zeros(3, 17)
    with pytest.raises(IndexError, match="a target outside the vocabulary of 17 tokens"):
        compiled.residual(z, torch.tensor([0, target, 1]), 1.0, False, z)
    assert (z == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("v", [1, 31, 64, 1000])
def test_rows_times_their_factors_are_rounded_as_torch_rounds(dtype, v):
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(70, v, generator=generator).to(dtype)
    factor = torch.randn(70, 1, generator=generator).mul(4).exp()
    factor[3], factor[4] = -0.0, math.nan
    # Half-way between two bf16, an even one above and an even one below.
    w[5], w[6] = 129 / 128, 131 / 128
    factor[5:7] = 1.5
    # NaN of all bits, which rounding would carry into the sign.
    factor[7:9] = torch.tensor([[0x7FFFFFFF], [-1]], dtype=torch.int32).view(torch.float32)
    wanted = softmax.scaled(w, factor, torch.empty_like(w))
    for out in (torch.empty_like(w), torch.empty(70, 2 * v, dtype=dtype)[:, v:], w):
        found = compiled.scaled(w, factor, out)
        assert found is out
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


USE = """
import torch
from tokenpo.core.ops.softmax_compiled import residual
residual(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long), 1.0, False, torch.zeros(1, 2))
"""


def test_what_a_killed_process_left_is_swept_by_the_next(tmp_path):
    """Killed while its compiler works: the folder stays. Others are still worked in, just made, or not ours."""
    slow, folders = tmp_path / "slow", tmp_path / "folders"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    folders.mkdir()
    environment = os.environ | {"TMPDIR": str(folders), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", USE], env=environment | {"CC": str(slow)}, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list(folders.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (left,) = folders.iterdir()
    in_use, fresh, other = (folders / f"{name}-1" for name in ("tokenpo-kernel-held", "tokenpo-kernel-new", "other"))
    for folder in (in_use, fresh, other):
        folder.mkdir()
    (folders / "tokenpo-kernel-link").symlink_to(other)
    for folder in (left, in_use, other):
        os.utime(folder, (1, 1))
    handle = os.open(in_use, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    subprocess.run([sys.executable, "-c", USE], env=environment, check=True)
    os.close(handle)
    assert set(folders.iterdir()) == {in_use, fresh, other, Path(folders / "tokenpo-kernel-link")}
