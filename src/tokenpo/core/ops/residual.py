"""The residual of a softmax, by the fastest kernel of the device; its formulas are in `softmax`.

A compiled kernel is compared with torch before it is used; where it differs or fails, torch takes its place, with a
warning. `TOKENPO_KERNELS=0` in the environment turns the compiled kernels off.

Axes: M rows, V vocabulary.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from . import softmax
from .softmax import RowStats


class Kernels(NamedTuple):
    """`softmax.residual` and `softmax.scaled`, or what takes their place."""

    residual: Callable[[Tensor, Tensor, float | Tensor, bool, Tensor], RowStats]
    scaled: Callable[[Tensor, Tensor, Tensor], Tensor]


_TORCH = Kernels(softmax.residual, softmax.scaled)


def residual(
    logits: Tensor, target: Tensor, scale: float | Tensor, *, drift: bool = False, out: Tensor | None = None
) -> RowStats:
    """Statistics of softmax(logits · scale) at `target`; writes p - 1_y over the logits, or to `out`.

    Args:
        logits: [M, V] of any float dtype, which the residual keeps.
        target: [M] int.
        scale: 1/T, a number or [M, 1].
        drift: also Σ_v p_v² (log p_v + H).
        out: [M, V] of the logits' dtype; None overwrites them.
    """
    out = logits if out is None else out
    return _kernels(logits, out).residual(logits, target, scale, drift, out)


def scaled(w: Tensor, factor: Tensor, *, spend: bool) -> Tensor:
    """w [M, V] times the factor [M, 1] of each row, in the dtype of w.

    Args:
        spend: w may be overwritten.
    """
    out = w if spend else torch.empty_like(w)
    return _kernels(w, out).scaled(w, factor, out)


def _kernels(x: Tensor, out: Tensor) -> Kernels:
    # Compiled kernels need rows that are contiguous and do not overlap, in memory that is there: subclasses of Tensor,
    # and the tensors of torch.compile, may have none. What records torch's operations would not see them.
    alike = x.dtype == out.dtype and x.shape == out.shape and type(x) is type(out) is Tensor and not out.requires_grad
    apart = x.stride(1) == out.stride(1) == 1 and out.stride(0) >= out.shape[1]
    return _of(x.device, x.dtype) if alike and apart and not _recorded() else _TORCH


def _recorded() -> bool:
    traced = torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
    return traced or torch.compiler.is_compiling() or is_in_torch_dispatch_mode()


def compiler() -> str | None:
    """The C compiler of the CPU's kernels, None where there is none; the last bits of results depend on it."""
    if _off():
        return None
    try:
        from . import softmax_compiled
    except ImportError:
        return None
    return softmax_compiled.compiler()


@functools.cache
def _of(device: torch.device, dtype: torch.dtype) -> Kernels:
    """Triton's on a GPU, those in C on a CPU, where the machine can compile them; else torch's."""
    if _off():
        return _TORCH
    try:
        if device.type == "cuda":
            from .softmax_triton import sums

            found = Kernels(functools.partial(softmax.residual, by=sums), softmax.scaled)
        elif device.type == "cpu":
            from . import softmax_compiled

            if dtype not in softmax_compiled.DTYPES:
                return _TORCH
            found = Kernels(softmax_compiled.residual, softmax_compiled.scaled)
        else:
            return _TORCH
    except ImportError:
        return _TORCH
    return _trusted(found, device, dtype)


def _off() -> bool:
    return os.environ.get("TOKENPO_KERNELS") == "0"


def _trusted(kernels: Kernels, device: torch.device, dtype: torch.dtype) -> Kernels:
    """The kernels if their numbers agree with torch's on the device; else torch's, with a warning."""
    try:
        # Once with one scale for all rows, once with a scale for each.
        right = _agree(kernels, device, dtype, drift=True, by_row=False)
        right = right and _agree(kernels, device, dtype, drift=False, by_row=True)
        fault = None if right else "its numbers differ"
    # Whatever a compiler and a driver can raise.
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    if fault is None:
        return kernels
    warnings.warn(
        f"tokenpo's compiled softmax fails on {device}, so torch's slower one runs for {dtype}: {fault}. "
        "TOKENPO_KERNELS=0 in the environment turns it off, and this warning too",
        stacklevel=2,
    )
    return _TORCH


def _agree(kernels: Kernels, device: torch.device, dtype: torch.dtype, *, drift: bool, by_row: bool) -> bool:
    # Rows longer than a kernel's block, and numbers enough for several threads.
    m, v = 6, 20_001
    with torch.device(device):
        logits = torch.linspace(-9, 9, m * v, dtype=torch.float32).sin_().mul_(9).view(m, v).to(dtype)
        logits[1, 7], logits[2, 12_345] = -torch.inf, torch.nan
        target = torch.tensor([20_000, 7, 0, 5, 19_999, 11_111])
        scale = torch.linspace(0.5, 2.5, m, dtype=torch.float32).unsqueeze(1) if by_row else 1.5
        factor = torch.tensor([[0.3], [-2.5], [1e-20], [1.0], [0.0], [7.0]], dtype=torch.float32)
    seen = []
    for residual_of, scaled_by in (kernels, _TORCH):
        left = logits.clone()
        stats = residual_of(left, target, scale, drift, left)
        seen.append([*stats, left, scaled_by(left, factor, torch.empty_like(left))])
    # Statistics differ by the order of 20,001 float32 in a sum, probabilities also by the rounding of their dtype.
    narrow = max(1e-5, torch.finfo(dtype).eps)
    return all(
        torch.allclose(ours, theirs, rtol=1e-5 if ours.dim() == 1 else narrow, atol=1e-6, equal_nan=True)
        for ours, theirs in zip(*seen, strict=True)
    )
