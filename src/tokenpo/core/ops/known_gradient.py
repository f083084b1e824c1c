"""Values whose gradients are already known, so that autograd need not derive them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def known(value: Tensor, inputs: Sequence[Tensor | None], gradients: Sequence[Tensor | None]) -> Tensor:
    """`value` with a graph to `inputs`; the backward pass multiplies `gradients` by the incoming gradient.

    The value, without graph, is a scalar or an elementwise function of the inputs, of which None and those without
    `requires_grad` are skipped; a gradient of None is zero.
    """
    return _Known.apply(value, gradients, *inputs)  # pyright: ignore[reportReturnType]


class _Known(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: Sequence[Tensor | None], *inputs: Tensor | None) -> Tensor:
        ctx.save_for_backward(*gradients)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        incoming = grads[0]
        # `loss.backward()` passes 1, which needs no product. On a GPU, reading the number would wait for the device.
        as_is = incoming.dim() == 0 and incoming.device.type == "cpu" and float(incoming) == 1
        out = (x if x is None or as_is else x * incoming.to(x.dtype) for x in ctx.saved_tensors)
        return (None, None, *out)
