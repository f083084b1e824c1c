"""A stand-in for a GPU: its tensors compute on the processor, and refuse to meet the processor's own tensors.

A mask left on the processor, a table made there or a number read through numpy is an error, as on a GPU. It shows
nothing about kernels and speed.

torch keeps the device for as long as the process lives, so its tests run in a process of their own (`cases.py`). It
uses private parts of torch, those for backends that are written in Python.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

NAME = "standin"
aten = torch.ops.aten
# Explicit copies between devices.
_CROSSING = {aten._to_copy, aten.copy_}
# An index may come from the processor, on a GPU too.
_INDEXING = {aten.index, aten.index_put, aten.index_put_}


class _Module(backend_registration._DummyBackendModule):
    """`torch.standin`: no random numbers of its own, so that none are drawn there unnoticed."""

    def get_rng_state(self, device: Any = 0) -> torch.Tensor:
        return torch.zeros(0, dtype=torch.uint8)

    def set_rng_state(self, state: torch.Tensor, device: Any = 0) -> None:
        pass

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
DEVICE = torch.device(NAME, 0)


class There(torch.Tensor):
    """A tensor on the device; `inner` is on the processor."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> There:
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, device=DEVICE, **layout)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(function, args, kwargs or {})

    def tolist(self) -> Any:
        return self.inner.tolist()

    def storage(self) -> Any:
        return self.inner.storage()

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()

    def __repr__(self) -> str:
        return f"There({self.inner!r})"


class _Factories(TorchDispatchMode):
    """Tensors from factories and from the processor go to the device that is asked for."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(function, args, kwargs or {})


@contextlib.contextmanager
def stand_in() -> Iterator[torch.device]:
    """The device, for a block of code."""
    lifts, swaps = torch._C._only_lift_cpu_tensors(), torch.__future__.get_swap_module_params_on_conversion()
    # `torch.tensor(..., device=...)` then fills on the processor and copies, which the mode sees.
    torch._C._set_only_lift_cpu_tensors(True)
    # A weight that two modules share stays one when a model moves, as on a GPU.
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        with _Factories():
            yield DEVICE
    finally:
        torch._C._set_only_lift_cpu_tensors(lifts)
        torch.__future__.set_swap_module_params_on_conversion(swaps)


def _run(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    given: list[torch.Tensor] = []
    _mapped(lambda x: given.append(x) if isinstance(x, torch.Tensor) else None, [*args, *kwargs.values()])
    there = [x for x in given if isinstance(x, There)]
    wanted, kwargs = _where(bool(there), kwargs)
    name = function.overloadpacket
    _refuse_two_devices(name, args, given, bool(there))
    out = function(*_mapped(_inner, args), **{key: _mapped(_inner, x) for key, x in kwargs.items()})
    if name is aten.copy_:
        return args[0]
    if not wanted:
        return out
    out = _mapped(lambda x: There(x) if isinstance(x, torch.Tensor) else x, out)
    return return_and_correct_aliasing(function, args, kwargs, out) if there else out


def _mapped(change: Callable[[Any], Any], x: Any) -> Any:
    """What an operation takes or gives, which holds lists and tuples at most; torch's `tree_map` is slow."""
    return type(x)([_mapped(change, each) for each in x]) if isinstance(x, list | tuple) else change(x)


def _where(there: bool, kwargs: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    """Whether the result belongs on the device, and the arguments for the processor."""
    device = kwargs.get("device")
    if device is None:
        return there, kwargs
    return torch.device(device).type == NAME, {**kwargs, "device": torch.device("cpu")}


def _refuse_two_devices(name: Any, args: Any, given: list[torch.Tensor], there: bool) -> None:
    if not there or name in _CROSSING:
        return
    if name in _INDEXING and isinstance(args[0], There):
        given = [args[0], *args[2:3]]
    # A number of no dimension may come from the processor.
    if any(x.dim() and not isinstance(x, There) for x in given):
        shapes = [f"{'device' if isinstance(x, There) else 'processor'} {list(x.shape)}" for x in given]
        raise RuntimeError(f"{name}: tensors on two devices: {', '.join(shapes)}")


def _inner(x: Any) -> Any:
    return x.inner if isinstance(x, There) else x
