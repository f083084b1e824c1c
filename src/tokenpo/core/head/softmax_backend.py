"""The residual of a softmax: by Triton's kernel on a GPU, else by torch's passes.

Before its first use the kernel is compared with torch; if it differs or fails, torch takes its place, with a warning.

Axes: M rows, V vocabulary.
"""

from __future__ import annotations

import functools
import warnings

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from . import softmax
from .softmax import LN2, RowStats, Sums, wide


def residual(
    logits: Tensor, target: Tensor, scale: float | Tensor, *, drift: bool = False, out: Tensor | None = None
) -> RowStats:
    """Statistics of softmax(logits · scale) at `target`; writes p - 1_y over the logits, or to `out`.

    Args:
        logits: [M, V] of any float dtype.
        target: [M] int.
        scale: 1/T, a number or [M, 1].
        drift: also Σ_v p_v² (log p_v + H).
        out: [M, V] of the logits' dtype; None overwrites them.
    """
    out = logits if out is None else out
    place = target.unsqueeze(-1)
    scale = scale / LN2  # powers of two are cheaper than those of e
    at_target = logits.gather(-1, place).to(wide(logits.dtype))
    peak, s, mean, *moments = sums_for(logits, out)(logits, scale, out, 5 if drift else 3)
    log_s = s.log2()
    logprob = at_target.sub_(peak).mul_(scale).sub_(log_s).mul_(LN2)
    entropy = log_s.sub_(mean).mul_(LN2)
    # Not `scatter_`, which reads and writes all of a half-precision tensor.
    rows = torch.arange(len(out), device=out.device)
    out[rows, target] = logprob.expm1().to(out.dtype).squeeze(-1)
    moved = (moments[1] - mean * moments[0]).mul_(LN2) if drift else peak.new_empty(0, 1)
    return RowStats(logprob.squeeze(-1), entropy.squeeze(-1), moved.squeeze(-1), peak.new_empty(0))


def sums_for(x: Tensor, out: Tensor) -> Sums:
    """The function that takes the sums of the rows of x and writes to `out`."""
    if x.device.type != "cuda" or _recorded():
        return softmax.sums
    # A kernel needs rows that are contiguous and do not overlap, in memory that is there: a subclass may have none.
    alike = x.dtype == out.dtype and x.shape == out.shape and type(x) is type(out) is Tensor and not out.requires_grad
    apart = x.stride(1) == out.stride(1) == 1 and out.stride(0) >= out.shape[1]
    return _kernel(x.device, x.dtype) if alike and apart else softmax.sums


def _recorded() -> bool:
    """Whether torch's operations are being recorded, which a kernel would escape."""
    traced = torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
    return traced or torch.compiler.is_compiling() or is_in_torch_dispatch_mode()


@functools.cache
def _kernel(device: torch.device, dtype: torch.dtype) -> Sums:
    """Triton's kernel if it is installed and agrees with torch."""
    try:
        from .softmax_triton import sums
    except ImportError:
        return softmax.sums
    return trusted(sums, device, dtype)


def trusted(kernel: Sums, device: torch.device, dtype: torch.dtype) -> Sums:
    """The kernel if its numbers agree with torch's on the device; else torch's, with a warning."""
    try:
        # Once with one scale for all rows, once with a scale for each.
        right = _agrees(kernel, device, dtype, count=5, by_row=False) and _agrees(
            kernel, device, dtype, count=3, by_row=True
        )
        fault = None if right else "its numbers differ"
    # Whatever a compiler and a driver can raise.
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    if fault is None:
        return kernel
    warnings.warn(
        f"tokenpo's Triton softmax fails on {device}, so torch's slower one runs for {dtype}: {fault}", stacklevel=2
    )
    return softmax.sums


def _agrees(kernel: Sums, device: torch.device, dtype: torch.dtype, *, count: int, by_row: bool) -> bool:
    # Rows longer than a kernel's block.
    m, v = 6, 20_001
    # Not `with torch.device(device)`: once transformers has loaded a model, linspace does not follow it.
    logits = torch.linspace(-9, 9, m * v, dtype=torch.float32, device=device).sin_().mul_(9).view(m, v).to(dtype)
    logits[1, 7], logits[2, 12_345] = -torch.inf, torch.nan
    scale = torch.linspace(0.5, 2.5, m, dtype=torch.float32, device=device).unsqueeze(1) if by_row else 1.5
    ours, theirs = torch.empty_like(logits), torch.empty_like(logits)
    sums = kernel(logits, scale, ours, count), softmax.sums(logits, scale, theirs, count)
    # Sums differ by the order of 20,001 float32, probabilities also by the rounding of their dtype.
    narrow = max(1e-5, torch.finfo(dtype).eps)
    return torch.allclose(*sums, rtol=1e-5, atol=1e-6, equal_nan=True) and torch.allclose(
        ours, theirs, rtol=narrow, atol=1e-6, equal_nan=True
    )
