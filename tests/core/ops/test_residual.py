"""Which way to a softmax's residual is taken: a kernel where it can be trusted, torch's passes elsewhere."""

from __future__ import annotations

import importlib
import math
import os
import shutil
import subprocess
import sys
import warnings
from functools import partial

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tokenpo.core.ops import residual as ways
from tokenpo.core.ops import softmax
from tokenpo.runs.versions import versions

LN, CPU = math.log, torch.device("cpu")


@pytest.mark.parametrize("apart", [(), ("logits",), ("out",), ("logits", "out")])
def test_a_kernel_gets_rows_in_one_piece(apart, monkeypatch):
    """Where the columns of either lie apart, torch's passes run, to the same numbers."""
    calls = []

    def kernel(*args):
        calls.append(args)
        return softmax.residual(*args)

    def laid(values, name):
        x = torch.tensor(values, dtype=torch.float64)
        return x.t().contiguous().t() if name in apart else x

    monkeypatch.setattr(ways, "_of", lambda device, dtype: ways.Kernels(kernel, softmax.scaled))
    z, out = laid([[0.0, LN(3)], [0.0, LN(3)]], "logits"), laid([[7.0, 7.0], [7.0, 7.0]], "out")
    stats = ways.residual(z, torch.tensor([1, 0]), 1.0, out=out)
    assert len(calls) == (not apart)
    assert stats.logprob.tolist() == pytest.approx([LN(0.75), LN(0.25)], rel=1e-14)
    assert out.flatten().tolist() == pytest.approx([0.25, -0.25, -0.75, 0.75], rel=1e-14)


def wrong_statistics(*args):
    stats = softmax.residual(*args)
    return stats._replace(entropy=stats.entropy * (1 + 1e-4))


def wrong_drift(*args):
    stats = softmax.residual(*args)
    return stats._replace(drift=stats.drift + 1e-4)


def wrong_output(logits, target, scale, drift, out):
    stats = softmax.residual(logits, target, scale, drift, out)
    out[1, -1] += 1e-4
    return stats


def no_scales(logits, target, scale, drift, out):
    """Takes the first row's temperature for all."""
    one = scale if isinstance(scale, float) else float(scale[0])
    return softmax.residual(logits, target, one, drift, out)


def wrong_with_one_scale(logits, target, scale, drift, out):
    stats = softmax.residual(logits, target, scale, drift, out)
    return stats if torch.is_tensor(scale) else stats._replace(entropy=stats.entropy * (1 + 1e-4))


def wrong_without_drift(logits, target, scale, drift, out):
    stats = softmax.residual(logits, target, scale, drift, out)
    return stats if drift else stats._replace(logprob=stats.logprob * (1 + 1e-4))


def broken(*args):
    raise OSError("no compiler")


@pytest.mark.parametrize(
    ("kernel", "said"),
    [(wrong_statistics, "numbers differ"), (wrong_drift, "numbers differ"), (wrong_output, "numbers differ"),
     (no_scales, "numbers differ"), (wrong_with_one_scale, "numbers differ"), (wrong_without_drift, "numbers differ"),
     (broken, "OSError: no compiler")],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_kernel_that_fails_gives_way_to_torch_and_that_is_said(kernel, said, dtype):
    with pytest.warns(UserWarning, match=f"compiled softmax fails on cpu.*{said}.*TOKENPO_KERNELS=0"):
        assert ways._trusted(ways.Kernels(kernel, softmax.scaled), CPU, dtype) is ways._TORCH


def test_so_does_one_that_scales_wrongly():
    def scaled(w, factor, out):
        return softmax.scaled(w, factor.abs(), out)

    with pytest.warns(UserWarning, match="numbers differ"):
        assert ways._trusted(ways.Kernels(softmax.residual, scaled), CPU, torch.float32) is ways._TORCH


def test_a_kernel_that_gives_what_torch_gives_is_taken():
    kernels = ways.Kernels(partial(softmax.residual, by=softmax.sums), softmax.scaled)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            assert ways._trusted(kernels, CPU, dtype) is kernels


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_where_there_is_a_compiler_it_is_used(dtype):
    compiled = pytest.importorskip("tokenpo.core.ops.softmax_compiled", exc_type=ImportError)
    if ways._off():
        pytest.skip("TOKENPO_KERNELS=0")
    ways._of.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ways._of(CPU, dtype) == (compiled.residual, compiled.scaled)
    assert ways.compiler() == versions()["cc"] == compiled.compiler()
    x = torch.zeros(2, 3, dtype=dtype)
    assert ways._kernels(x, x) is ways._of(CPU, dtype)


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("cc") is None, reason="no cc of Linux: nothing is compiled")
def test_on_linux_with_cc_it_is_there_and_names_its_compiler(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    compiled = importlib.import_module("tokenpo.core.ops.softmax_compiled")
    monkeypatch.setattr(compiled, "_COMPILER", ["cc"])
    said = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True).stdout
    assert compiled.compiler() == said.splitlines()[0]
    assert compiled.residual(torch.zeros(1, 2), torch.tensor([0]), 1.0, False, torch.empty(1, 2)).logprob.tolist() == (
        pytest.approx([-LN(2)], rel=1e-6)
    )


def test_it_is_tried_whatever_the_default_dtype():
    kernels = ways.Kernels(partial(softmax.residual, by=softmax.sums), softmax.scaled)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert ways._trusted(kernels, CPU, torch.float32) is kernels
    finally:
        torch.set_default_dtype(torch.float32)


class Marked(torch.Tensor):
    """A tensor of another type."""


@pytest.mark.parametrize(
    ("x", "out"),
    [
        (torch.zeros(2, 3), torch.zeros(2, 3, dtype=torch.bfloat16)),
        (torch.zeros(2, 3), torch.zeros(3, 3)),
        (torch.zeros(2, 3), torch.zeros(1, 3).expand(2, 3)),
        (torch.zeros(2, 3).as_subclass(Marked), torch.zeros(2, 3)),
        (torch.zeros(2, 3), torch.zeros(2, 3, requires_grad=True)),
    ],
)
def test_what_memory_cannot_be_written_plainly_is_left_to_torch(x, out):
    assert ways._kernels(x, out) is ways._TORCH


def test_what_no_kernel_is_written_for_is_torchs():
    assert ways._of(CPU, torch.float64) is ways._TORCH
    assert ways._of(CPU, torch.float16) is ways._TORCH


def test_under_torch_compile_there_is_no_memory_to_point_at(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    x = torch.zeros(2, 3)
    assert ways._kernels(x, x) is ways._TORCH


def test_a_trace_holds_all_that_is_computed():
    """Of other logits than those it was taken with it gives what belongs to them."""

    def run(z):
        left = torch.empty_like(z)
        stats = ways.residual(z, torch.tensor([1, 0]), 1.0, out=left)
        return stats.logprob, left

    z = torch.tensor([[0.0, 3.0], [1.0, -1.0]])
    wanted = run(2 * z)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is old
        traced = torch.jit.trace(run, (z,), check_trace=False)
    for recorded in (traced, make_fx(run)(z)):
        for seen, want in zip(recorded(2 * z), wanted, strict=True):
            torch.testing.assert_close(seen, want)


WHICH = """
import torch, warnings
from tokenpo.core.ops import residual as ways
z = torch.tensor([[0.0, 3.0]])
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    ways.residual(z, torch.tensor([1]), 1.0)
print(ways._of(z.device, z.dtype) is ways._TORCH, ways.compiler(), *(str(one.message) for one in said), sep="|")
"""


@pytest.mark.parametrize(("value", "off"), [("0", True), ("1", False), ("", False)])
def test_only_0_leaves_kernels_out(value, off, monkeypatch):
    monkeypatch.setenv("TOKENPO_KERNELS", value)
    assert ways._off() is off
    if off:
        assert ways.compiler() is None


def told(**environment: str) -> list[str]:
    """Whether torch's passes ran in a process of its own, what compiles, and the warnings."""
    run = [sys.executable, "-c", WHICH]
    done = subprocess.run(run, env=os.environ | environment, capture_output=True, text=True, check=True)
    return done.stdout.strip().split("|")


def test_an_environment_variable_leaves_kernels_out():
    assert told(TOKENPO_KERNELS="0") == ["True", "None"]


def test_without_a_compiler_torch_computes_and_nothing_is_said():
    assert told(CC="there-is-no-such-compiler", TOKENPO_KERNELS="") == ["True", "None"]


def test_a_compiler_that_cannot_be_read_is_none():
    assert told(CC="'cc", TOKENPO_KERNELS="") == ["True", "None"]


def test_a_compiler_that_fails_is_named():
    torchs, _, said = told(CC="false", TOKENPO_KERNELS="")
    assert torchs == "True"
    assert "RuntimeError: false -O3" in said
