"""Numbers, sums and means over the true entries of a mask. Empty selections give 0, never NaN.

torch has no vectorised CPU kernel that reads a bool beside a float: `where` takes many times as long as a product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Integers as wide as a float: −1 has every bit set, 0 none.
_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


def keep(x: Tensor, mask: Tensor) -> Tensor:
    """x where mask is true, 0 elsewhere, whatever x holds there (NaN included), in value and in gradient.

    Args:
        x: float, of a shape that broadcasts with mask.
    """
    return _Keep.apply(x, mask) if x.requires_grad else _kept(x, mask)  # pyright: ignore[reportReturnType]


def ones(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """1 where mask is true, 0 elsewhere."""
    return mask.view(torch.int8).to(dtype)


class _Keep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.shape = x.shape
        return _kept(x, mask)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return keep(grads[0], ctx.saved_tensors[0]).sum_to_size(ctx.shape), None


def _kept(x: Tensor, mask: Tensor) -> Tensor:
    bits = _BITS.get(x.dtype)
    if bits is None or x.device.type != "cpu":
        return torch.where(mask, x, 0.0)
    if mask.shape != x.shape:
        mask = mask.expand(torch.broadcast_shapes(x.shape, mask.shape))
    out = mask.view(torch.int8).to(bits).neg_()
    # In place: memory that was never touched costs more than the arithmetic.
    return out.bitwise_and_(x.detach().view(bits)).view(x.dtype)


def mean(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of x over the true entries of mask: [] for dim=None, else x's shape with `dim` kept at size 1.

    >>> mean(torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[True, True, False]]))
    tensor(2.)
    """
    kept = keep(x, mask)
    if dim is None:
        return kept.sum() / mask.sum().clamp(min=1)
    return kept.sum(dim, keepdim=True) / mask.sum(dim, keepdim=True).clamp(min=1)
