"""A function given by its value and its derivative."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def sloped(value: Tensor, x: Tensor, slope: Tensor) -> Tensor:
    """`value` as a function of `x` whose derivative is `slope`, entry by entry; it can be differentiated once."""
    if not x.requires_grad:
        return value
    return _Sloped.apply(value, x, slope)  # pyright: ignore[reportReturnType]


class _Sloped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, x: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None, grads[0] * ctx.saved_tensors[0], None
