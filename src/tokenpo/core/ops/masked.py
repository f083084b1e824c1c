"""Numbers, sums and means over the true entries of a mask. Empty selections give 0, never NaN.

torch has no vectorised CPU kernel that reads a bool beside a float: `where` takes many times as long as a product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Integers as wide as a float: multiplied by 1 its bits stay what they are, by 0 they become those of 0, NaN's too.
_BITS = {torch.float32: torch.int32, torch.float64: torch.int64}


def keep(x: Tensor, mask: Tensor) -> Tensor:
    """x where mask is true, 0 elsewhere, whatever x holds there (NaN included), in value and in gradient.

    Args:
        x: float, of a shape that broadcasts to mask's.
    """
    return _Keep.apply(x, mask) if x.requires_grad else _kept(x, mask)  # pyright: ignore[reportReturnType]


def ones(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """1 where mask is true, 0 elsewhere."""
    return mask.view(torch.int8).to(dtype)


def count(mask: Tensor, dim: int | None = None) -> Tensor:
    """How many entries are true: [] for dim=None, else mask's shape with `dim` kept at size 1."""
    if dim is None:
        return mask.count_nonzero()
    # Bytes summed in 32 bits: of bools torch makes 64-bit integers before it adds them.
    return mask.view(torch.int8).sum(dim, keepdim=True, dtype=torch.int32)


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
    # In place: touching fresh memory costs more than the arithmetic.
    return mask.view(torch.int8).to(bits).mul_(x.view(bits)).view(x.dtype)


def mean(x: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of x over the true entries of mask: [] for dim=None, else x's shape with `dim` kept at size 1.

    >>> mean(torch.tensor([[1.0, 3.0, 9.0]]), torch.tensor([[True, True, False]]))
    tensor(2.)
    """
    kept = keep(x, mask)
    if dim is None:
        return kept.sum() / count(mask).clamp(min=1)
    return kept.sum(dim, keepdim=True) / count(mask, dim).clamp(min=1)
