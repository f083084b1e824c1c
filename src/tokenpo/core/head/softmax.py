"""The softmax of rows of logits: its parts for sampling; its statistics and gradient for training.

With a = 1/T the inverse temperature, m the largest logit of a row, d = (z - m) a, s = Σ_v exp(d_v), p = exp(d) / s:

    log p_y = d_y - log s        H = log s - Σ_v p_v d_v        drift = Σ_v p_v² (log p_v + H)
    ∂ log p_y / ∂z = -a (p - 1_y)        ∂H / ∂z_v = -a p_v (log p_v + H)

This form of H is exact for nearly deterministic distributions; log-sum-exp minus a mean of logits is not. The
*residual* p - 1_y gives the gradient through log p_y and overwrites the logits; its entry at y is expm1(log p_y), which
is exact where p_y is almost 1. A logit of -inf means probability zero. Statistics are in nats, float32 (float64 for
float64 logits).

The sums are made by a Triton kernel on a GPU, and by torch elsewhere. Before its first use the kernel is compared with
torch; if it differs or fails, torch is used, with a warning.

Axes: M rows, V vocabulary.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from itertools import repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

LN2 = math.log(2)
# exp(-1e4) is 0 in every dtype here; 0 · -1e4 is 0, but 0 · -inf is NaN.
FLOOR = -1e4
# Logits per block: few enough for a core's cache, or many enough to keep a GPU busy.
_BLOCK_LOGITS, _GPU_BLOCK_LOGITS = 2**17, 2**26
# Type of `sums` and of a kernel that replaces it.
Sums = Callable[[Tensor, float | Tensor, Tensor, int], Tensor]


class Softmax(NamedTuple):
    """d = (z - max)/T [M, V] (may be overwritten), p = exp(d) [M, V], s = Σ p [M, 1]."""

    d: Tensor
    p: Tensor
    s: Tensor


def softmax_parts(logits: Tensor, scale: float | Tensor = 1.0) -> Softmax:
    """The unnormalised softmax of logits [M, V] at inverse temperature `scale` (a number or [M, 1])."""
    z = logits if logits.dtype == torch.float64 else logits.float()
    d = z - z.amax(-1, keepdim=True)
    if not (isinstance(scale, float) and scale == 1.0):
        d.mul_(scale)
    p = d.exp()
    return Softmax(d, p, p.sum(-1, keepdim=True))


def entropy_of(parts: Softmax) -> Tensor:
    """[M] nats."""
    return parts.s.log().squeeze(-1) - (parts.p * parts.d.clamp(min=FLOOR)).sum(-1) / parts.s.squeeze(-1)


class RowStats(NamedTuple):
    """log p_y, H, drift and divergence of M rows, each [M] in nats; the last two are empty if not computed."""

    logprob: Tensor
    entropy: Tensor
    drift: Tensor
    divergence: Tensor

    def at(self, rows: slice | Tensor) -> RowStats:
        """The statistics of some rows."""
        return RowStats(*(part(x, rows) if len(x) else x for x in self))


def part(x: Any, at: slice | Tensor) -> Any:
    """The rows `at` of a tensor; x itself if these are all its rows, or if x is not a tensor."""
    if not isinstance(x, Tensor) or (isinstance(at, slice) and at.indices(len(x)) == (0, len(x), 1)):
        return x
    return x[at]


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype for sums: at least float32."""
    return torch.promote_types(dtype, torch.float32)


def sums(logits: Tensor, scale: float | Tensor, out: Tensor, count: int) -> Tensor:
    """[count, M, 1]: m, s, Σ p d and, with count 5 in place of 3, Σ p² and Σ p² d; writes p to `out`.

    `scale` is log2 e / T, a number or [M, 1], so that d is in bits; `out` [M, V] may be the logits.
    """
    m, v = logits.shape
    step = block_rows(v, logits.device)
    result = logits.new_empty(count, m, 1, dtype=wide(logits.dtype))
    # The buffers serve all blocks, as new ones would cost page faults. In half precision p needs a buffer too.
    shifted = logits.new_empty(min(step, m), v, dtype=result.dtype)
    wide_p = None if out.dtype == result.dtype else torch.empty_like(shifted)
    scales = scale.split(step) if isinstance(scale, Tensor) else repeat(scale)
    for z, here, a, block in zip(logits.split(step), out.split(step), scales, result.split(step, 1), strict=False):
        d, p = shifted[: len(z)], here if wide_p is None else wide_p[: len(z)]
        _block(z if wide_p is None else d.copy_(z), a, d, p, block)
        if p is not here:
            here.copy_(p)
    return result


def _block(z: Tensor, scale: float | Tensor, d: Tensor, p: Tensor, result: Tensor) -> None:
    """Writes the sums [3 or 5, k, 1] of k rows, and p; d is scratch."""
    peak, s, mean, *moments = result
    # Without the clamp, a row without a finite logit would have NaN before its sums are divided.
    torch.amax(z, -1, keepdim=True, out=peak).clamp_(min=torch.finfo(peak.dtype).min)
    torch.exp2(torch.sub(z, peak, out=d).mul_(scale).clamp_(min=FLOOR), out=p)
    torch.sum(p, -1, keepdim=True, out=s)
    torch.sum(d.mul_(p.mul_(s.reciprocal())), -1, keepdim=True, out=mean)
    if moments:
        torch.sum(p.square(), -1, keepdim=True, out=moments[0])
        torch.sum(d.mul_(p), -1, keepdim=True, out=moments[1])


def scaled(w: Tensor, factor: Tensor, *, spend: bool) -> Tensor:
    """w [M, V] times the factor [M, 1] of each row, in the dtype of w; `spend` overwrites w."""
    return torch.mul(w, factor, out=w if spend else torch.empty_like(w))


def ascent(
    left: Tensor,
    stats: RowStats,
    target: Tensor,
    scale: float | Tensor,
    g: Tensor,
    g_entropy: Tensor | None,
    g_divergence: Tensor | None = None,
    slope: Tensor | None = None,
    *,
    spend: bool = False,
) -> tuple[Tensor, Tensor]:
    """(w [M, V], f [M, 1]); f · w is the gradient of Σ g log p_y + g_entropy H + g_divergence D to the logits.

    f is cheaper to apply to hidden states, and a small f would cost digits of a half-precision w. `left` (overwritten
    if `spend`) and `stats` are what `residual` wrote and returned; D is the divergence from a teacher, and `slope`
    [M, V] its gradient to the scaled logits.
    """
    if g_entropy is None and g_divergence is None:
        return left, -g.unsqueeze(-1) * scale
    w = left if spend else torch.empty_like(left)
    step = block_rows(left.shape[1], left.device)
    for start in range(0, len(left), step):
        at = slice(start, start + step)
        y, logprob = target[at].unsqueeze(-1), stats.logprob[at].unsqueeze(-1)
        r = left[at].to(logprob.dtype)
        if g_entropy is None:
            total = r * g[at].unsqueeze(-1)
        else:
            p = r.scatter(-1, y, logprob.exp())
            rise = torch.xlogy(p, p).addcmul_(p, stats.entropy[at].unsqueeze(-1))
            total = rise.mul_(g_entropy[at].unsqueeze(-1)).addcmul_(r, g[at].unsqueeze(-1))
        if g_divergence is not None and slope is not None:
            total.addcmul_(slope[at].to(total.dtype), g_divergence[at].unsqueeze(-1), value=-1)
        w[at] = total.to(w.dtype)
    return w, -torch.ones_like(g).unsqueeze(-1) * scale


def block_rows(vocabulary: int, device: torch.device) -> int:
    """Number of rows of logits [·, V] to process at once."""
    return max(1, (_BLOCK_LOGITS if device.type == "cpu" else _GPU_BLOCK_LOGITS) // vocabulary)


def residual(
    logits: Tensor, target: Tensor, scale: float | Tensor, *, drift: bool = False, out: Tensor | None = None
) -> RowStats:
    """Statistics of softmax(logits · scale) at `target` [M]; writes the residual p - 1_y over the logits, or to `out`.

    The logits [M, V] have any float dtype; the scale 1/T is a number or [M, 1]; `drift` also computes that.
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
    """The implementation of `sums` to use for x [M, V] and `out`."""
    if x.device.type != "cuda" or _recorded():
        return sums
    # The kernel needs contiguous rows that do not overlap. A subclass of Tensor may have no memory.
    plain = x.dtype == out.dtype and x.shape == out.shape and type(x) is type(out) is Tensor and not out.requires_grad
    contiguous = x.stride(1) == out.stride(1) == 1 and out.stride(0) >= out.shape[1]
    return _kernel(x.device, x.dtype) if plain and contiguous else sums


def _recorded() -> bool:
    """Whether torch is recording operations; it would not see those of a kernel."""
    traced = torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
    return traced or torch.compiler.is_compiling() or is_in_torch_dispatch_mode()


@functools.cache
def _kernel(device: torch.device, dtype: torch.dtype) -> Sums:
    """The Triton kernel if Triton is installed and the kernel agrees with torch; else torch's `sums`."""
    try:
        from . import softmax_triton
    except ImportError:
        return sums
    return trusted(softmax_triton.sums, device, dtype)


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
    return sums


def _agrees(kernel: Sums, device: torch.device, dtype: torch.dtype, *, count: int, by_row: bool) -> bool:
    # Rows longer than a kernel's block.
    m, v = 6, 20_001
    # Not `with torch.device(device)`: after transformers has loaded a model, linspace ignores it.
    logits = torch.linspace(-9, 9, m * v, dtype=torch.float32, device=device).sin_().mul_(9).view(m, v).to(dtype)
    logits[1, 7], logits[2, 12_345] = -torch.inf, torch.nan
    scale = torch.linspace(0.5, 2.5, m, dtype=torch.float32, device=device).unsqueeze(1) if by_row else 1.5
    by_kernel, by_torch = torch.empty_like(logits), torch.empty_like(logits)
    pair = kernel(logits, scale, by_kernel, count), sums(logits, scale, by_torch, count)
    # Sums of 20,001 float32 depend on their order; probabilities are also rounded to their dtype.
    narrow = max(1e-5, torch.finfo(dtype).eps)
    return torch.allclose(*pair, rtol=1e-5, atol=1e-6, equal_nan=True) and torch.allclose(
        by_kernel, by_torch, rtol=narrow, atol=1e-6, equal_nan=True
    )
