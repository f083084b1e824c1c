"""The residual of a softmax, computed by a Triton kernel on a GPU and by torch elsewhere.

Before its first use the kernel is compared with torch. If it differs or fails, torch is used, with a warning.

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
    """Statistics of softmax(logits · scale) at `target`; writes the residual p - 1_y over the logits, or to `out`.

    Args:
        logits: [M, V] of any float dtype.
        target: [M] int.
        scale: 1/T, a number or [M, 1].
        drift: also compute Σ_v p_v² (log p_v + H).
        out: [M, V] of the logits' dtype; None overwrites the logits.
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
    """The implementation of `softmax.sums` to use for x [M, V] and `out`."""
    if x.device.type != "cuda" or _recorded():
        return softmax.sums
    # The kernel needs contiguous rows that do not overlap. A subclass of Tensor may have no memory.
    plain = x.dtype == out.dtype and x.shape == out.shape and type(x) is type(out) is Tensor and not out.requires_grad
    contiguous = x.stride(1) == out.stride(1) == 1 and out.stride(0) >= out.shape[1]
    return _kernel(x.device, x.dtype) if plain and contiguous else softmax.sums


def _recorded() -> bool:
    """Whether torch is recording operations; it would not see those of a kernel."""
    traced = torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
    return traced or torch.compiler.is_compiling() or is_in_torch_dispatch_mode()


@functools.cache
def _kernel(device: torch.device, dtype: torch.dtype) -> Sums:
    """The Triton kernel if Triton is installed and the kernel agrees with torch; else torch's `sums`."""
    try:
        from .softmax_triton import sums
    except ImportError:
        return softmax.sums
    return trusted(sums, device, dtype)


def trusted(kernel: Sums, device: torch.device, dtype: torch.dtype) -> Sums:
    """The kernel if its numbers agree with torch's on the device; else torch's `sums`, with a warning."""
    try:
        # Once with one scale for all rows, once with a scale per row.
        right = _agrees(kernel, device, dtype, count=5, by_row=False) and _agrees(
            kernel, device, dtype, count=3, by_row=True
        )
        fault = None if right else "its numbers differ"
    # A compiler and a driver can raise anything.
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
    # Not `with torch.device(device)`: after transformers has loaded a model, linspace ignores it.
    logits = torch.linspace(-9, 9, m * v, dtype=torch.float32, device=device).sin_().mul_(9).view(m, v).to(dtype)
    logits[1, 7], logits[2, 12_345] = -torch.inf, torch.nan
    scale = torch.linspace(0.5, 2.5, m, dtype=torch.float32, device=device).unsqueeze(1) if by_row else 1.5
    by_kernel, by_torch = torch.empty_like(logits), torch.empty_like(logits)
    sums = kernel(logits, scale, by_kernel, count), softmax.sums(logits, scale, by_torch, count)
    # Sums of 20,001 float32 depend on their order; probabilities are also rounded to their dtype.
    narrow = max(1e-5, torch.finfo(dtype).eps)
    return torch.allclose(*sums, rtol=1e-5, atol=1e-6, equal_nan=True) and torch.allclose(
        by_kernel, by_torch, rtol=narrow, atol=1e-6, equal_nan=True
    )
