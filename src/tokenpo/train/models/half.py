"""A bf16 copy of a float32 model: the copy samples, scores and differentiates, the original is trained and saved.

The products run in bf16, weights and optimiser stay in float32. A weight is cast once for each update, not once for
each pass.
"""

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .model import LanguageModel
from .packed import can_pack
from .score import has_plain_head


def has_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bf16 with instructions of its own: a GPU, or a CPU that has them."""
    if device.type != "cpu":
        return True
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(getattr(torch.cpu, name, bool)() for name in names)


def halved(lm: LanguageModel, *, trained: bool = True) -> LanguageModel:
    """The bf16 copy of a float32 model; the model itself in another dtype, or on a device without bf16.

    Args:
        trained: keep the original, as `LanguageModel.master`.
    """
    if lm.model.dtype != torch.float32 or not has_bf16(lm.device):
        return lm
    # Probed on the original, because rounding hides what the probes look for.
    abilities = {"packed": can_pack(lm), "plain_head": has_plain_head(lm)}
    known = {
        id(x): torch.nn.Parameter(x.detach().bfloat16(), requires_grad=x.requires_grad) for x in lm.model.parameters()
    }
    model, adapter = copy.deepcopy((lm.model, lm.adapter), known)
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = functools.partial(_recomputed, module.forward)
    return dataclasses.replace(lm, model=model, adapter=adapter, abilities=abilities, master=lm if trained else None)


def _recomputed(forward: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """A norm that keeps its bf16 input for the backward pass, in place of several float32 tensors."""
    if not torch.is_grad_enabled():
        return forward(*inputs)
    return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False)


@torch.no_grad()
def refresh(lm: LanguageModel) -> None:
    """Copies the trained weights of the original into the copy; nothing to do for a model that is not a copy."""
    for half, x in _pairs(lm):
        half.copy_(x)


@torch.no_grad()
def move_gradients(lm: LanguageModel) -> None:
    """Adds the copy's gradients to the original's; nothing to do for a model that is not a copy."""
    for half, x in _pairs(lm):
        if half.grad is not None:
            x.grad = half.grad.float() if x.grad is None else x.grad.add_(half.grad)
            half.grad = None


def _pairs(lm: LanguageModel) -> Iterator[tuple[Tensor, Tensor]]:
    if lm.master is not None:
        for half, x in zip(lm.model.parameters(), lm.master.model.parameters(), strict=True):
            if x.requires_grad:
                yield half, x
