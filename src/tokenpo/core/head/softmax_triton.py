"""The sums of a softmax in one Triton kernel, which reads a row of logits twice and writes it once.

torch makes nine passes over the logits (`softmax.sums`). The first pass here keeps a running maximum and rescales its
sums to each higher one. The module can only be imported if Triton is installed. Axes: M rows, V vocabulary.
"""

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor

from .softmax import wide

# As in `softmax`; a kernel reads a global only if it is declared constexpr.
_FLOOR = tl.constexpr(-1e4)
_LOWEST = tl.constexpr(torch.finfo(torch.float32).min)
# Logits of a row that are processed at once, and the number of warps.
_BLOCK, _WARPS = 8192, 16


def sums(logits: Tensor, scale: float | Tensor, out: Tensor, count: int) -> Tensor:
    """As `softmax.sums`, for tensors whose rows are contiguous."""
    m, v = logits.shape
    result = logits.new_empty(count, m, 1, dtype=wide(logits.dtype))
    # A number is filled in on the device, as copying it there would wait for the queued work.
    scales = scale if isinstance(scale, Tensor) else result.new_full((1, 1), scale)
    scales = scales.to(result.dtype).expand(m, 1).contiguous()
    block = min(_BLOCK, triton.next_power_of_2(v))
    if m:
        strides = logits.stride(0), out.stride(0)
        kernel = _row[(m,)]  # pyright: ignore[reportIndexIssue]
        # Triton launches on the current device, even if the tensors are on another.
        with torch.cuda.device_of(logits):
            kernel(logits, out, scales, result, m, v, *strides, BLOCK=block, MOMENTS=count > 3, num_warps=_WARPS)
    return result


# `m` is not specialised, so that one compilation serves every number of rows.
@triton.jit(do_not_specialize=["m"])
def _row(logits, out, scales, sums, m, v, stride, out_stride, BLOCK: tl.constexpr, MOMENTS: tl.constexpr):
    """One row. Writes m, s, Σ p d and, with MOMENTS, Σ p² and Σ p² d to [M] each."""
    # Offsets are 64-bit, as a large chunk has more than 2^31 logits.
    row, m = tl.program_id(0).to(tl.int64), m.to(tl.int64)
    kind = sums.dtype.element_ty
    scale = tl.load(scales + row)
    peak = tl.full((), _LOWEST, kind)
    s = tl.zeros((), kind)
    mean = tl.zeros((), kind)
    squares = tl.zeros((), kind)
    moved = tl.zeros((), kind)
    for start in range(0, v, BLOCK):
        place = start + tl.arange(0, BLOCK)
        z = tl.load(logits + row * stride + place, mask=place < v, other=-float("inf")).to(kind)
        higher = tl.maximum(peak, tl.max(z, 0))
        step = tl.maximum((peak - higher) * scale, _FLOOR)
        shrink = tl.exp2(step)
        peak = higher
        # A NaN must reach the statistics, as in torch.
        d = tl.maximum((z - peak) * scale, _FLOOR, propagate_nan=tl.PropagateNan.ALL)
        e = tl.exp2(d)
        if MOMENTS:
            moved = (moved + step * squares) * shrink * shrink + tl.sum(e * e * d, 0)
            squares = squares * shrink * shrink + tl.sum(e * e, 0)
        mean = (mean + step * s) * shrink + tl.sum(e * d, 0)
        s = s * shrink + tl.sum(e, 0)
    # The GPU's maximum ignores NaN, so the peak of a row with NaN is set to its sum, NaN.
    tl.store(sums + row, tl.where(s == s, peak, s))
    tl.store(sums + m + row, s)
    tl.store(sums + 2 * m + row, mean / s)
    if MOMENTS:
        tl.store(sums + 3 * m + row, squares / (s * s))
        tl.store(sums + 4 * m + row, moved / (s * s))
    for start in range(0, v, BLOCK):
        place = start + tl.arange(0, BLOCK)
        z = tl.load(logits + row * stride + place, mask=place < v, other=-float("inf")).to(kind)
        d = tl.maximum((z - peak) * scale, _FLOOR, propagate_nan=tl.PropagateNan.ALL)
        p = tl.exp2(d) / s
        tl.store(out + row * out_stride + place, p.to(out.dtype.element_ty), mask=place < v)
