"""Checks tensors from outside: shape, dtype, and finite numbers in range. Padding is zeroed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.errors import NotFinite, TokenPOError
from .facts import Fact
from .ops import masked

HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Boundary:
    """Checks the fields of one value.

    Args:
        owner: name of the value, which starts every message.
    """

    owner: str

    def mask(self, x: Any) -> None:
        """x must be a boolean mask [N, T] with at least one true entry."""
        self._tensor(x, "mask")
        shape = list(x.shape)
        faults = {
            f"has shape {shape}, expected [N, T]": x.dim() != 2,
            f"has dtype {x.dtype}, expected torch.bool: convert it": x.dtype != torch.bool,
            f"has shape {shape}: the batch is empty": x.numel() == 0,
            "is false everywhere: no rollout has a response token": not x.any(),
        }
        if fault := next((words for words, found in faults.items() if found), ""):
            raise TokenPOError(f"{self.owner}.mask {fault}")

    def shape(self, x: Any, name: str, shape: tuple[int, ...]) -> None:
        """x must be a tensor of this shape, [N] or [N, T]."""
        self._tensor(x, name)
        if tuple(x.shape) != shape:
            axes = "[N, T]" if len(shape) == 2 else "[N]"
            raise TokenPOError(f"{self.owner}.{name} has shape {list(x.shape)}, expected {axes} = {list(shape)}")

    def fact(self, x: Any, name: str, fact: Fact, mask: Tensor) -> Tensor:
        """x, checked against its declaration: detached, padding zeroed, integer or at least float32."""
        by_token = fact.shape == "[N, T]"
        if fact.shape == "[N, R]":
            self._tensor(x, name)
            if x.dim() != 2 or len(x) != len(mask) or not x.shape[1]:
                shape = list(x.shape)
                raise TokenPOError(f"{self.owner}.{name} has shape {shape}, expected [N, R] with N = {len(mask)}")
        else:
            self.shape(x, name, tuple(mask.shape) if by_token else (len(mask),))
        if fact.kind.whole:
            if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
                raise TokenPOError(f"{self.owner}.{name} has dtype {x.dtype}, expected integers such as torch.long")
            x = x.masked_fill(~mask, 0) if by_token and not fact.context else x
        elif by_token:
            x = self.tokens(x, name, mask)
        else:
            x = self._real(x, name, x.isinf() if fact.shape == "[N, R]" else ~x.isfinite())
        if fact.kind.bounded:
            outside = fact.kind.outside(x.detach())
            self._refuse(x, name, outside & mask if by_token else outside, f"but {fact.kind.words}")
        if fact.ascending:
            falls = mask & (x < x.cummax(1).values)
            self._refuse(x, name, falls, "less than at an earlier token: number the turns of a response in their order")
        return x.detach()

    def tokens(self, x: Any, name: str, mask: Tensor) -> Tensor:
        """x [N, T], checked to be finite on response tokens: padding zeroed, at least float32."""
        self.shape(x, name, tuple(mask.shape))
        if not x.is_floating_point():
            raise TokenPOError(f"{self.owner}.{name} has dtype {x.dtype}, expected a floating-point tensor")
        x = masked.keep(x.float() if x.dtype in HALF else x, mask)
        # One sum is faster than N·T flags. As a sum of finite numbers may overflow, each is then looked at.
        if not math.isfinite(x.detach().sum().item()) and (bad := ~x.detach().isfinite()).any():
            row, place = self._first(x, name, bad)
            raise NotFinite(
                f"{place} on a response token: find its cause (an overflow in the forward pass, or a wrong mask)", row
            )
        return x

    def _real(self, x: Tensor, name: str, bad: Tensor) -> Tensor:
        """x as at least float32; refuses it if any of `bad` is true."""
        if x.is_complex():
            raise TokenPOError(f"{self.owner}.{name} has dtype {x.dtype}, expected real numbers")
        if bad.any():
            row, place = self._first(x, name, bad)
            raise NotFinite(f"{place}: it must be finite, mend what made it", row)
        return x.float() if x.dtype in HALF or not x.is_floating_point() else x

    def _refuse(self, x: Tensor, name: str, bad: Tensor, why: str) -> None:
        if bad.any():
            raise TokenPOError(f"{self._first(x, name, bad)[1]}, {why}")

    def _first(self, x: Tensor, name: str, bad: Tensor) -> tuple[int, str]:
        """Row and description of the first bad entry."""
        place = bad.nonzero()[0].tolist()
        return place[0], f"{self.owner}.{name}{place} is {x[tuple(place)].item():g}"

    def _tensor(self, x: Any, name: str) -> None:
        if not isinstance(x, Tensor):
            raise TokenPOError(f"{self.owner}.{name} must be a tensor, got {type(x).__name__}")
