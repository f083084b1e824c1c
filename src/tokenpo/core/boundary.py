"""Where tensors enter: shapes, kinds and finiteness are checked once, and padding is zeroed once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.errors import NotFinite, TokenPOError
from .facts import Fact, Kind
from .ops import masked

HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Boundary:
    """Checks the fields of one value; every message begins with its name.

    Args:
        owner: the value that the fields belong to.
    """

    owner: str

    def mask(self, x: Any) -> None:
        """x must be a boolean mask with at least one true entry."""
        self._tensor(x, "mask")
        if x.dim() != 2:
            raise TokenPOError(f"{self.owner}.mask has shape {list(x.shape)}, expected [N, T]")
        if x.dtype != torch.bool:
            raise TokenPOError(f"{self.owner}.mask has dtype {x.dtype}, expected torch.bool: convert it")
        if x.numel() == 0:
            raise TokenPOError(f"{self.owner}.mask has shape {list(x.shape)}: the batch is empty")
        if not x.any():
            raise TokenPOError(f"{self.owner}.mask is false everywhere: no rollout has a response token")

    def shape(self, x: Any, name: str, shape: tuple[int, ...]) -> None:
        """x must be a tensor of that shape."""
        self._tensor(x, name)
        if tuple(x.shape) != shape:
            axes = "[N, T]" if len(shape) == 2 else "[N]"
            raise TokenPOError(f"{self.owner}.{name} has shape {list(x.shape)}, expected {axes} = {list(shape)}")

    def fact(self, x: Any, name: str, fact: Fact, mask: Tensor) -> Tensor:
        """x as its declaration says, detached, its padding zeroed, float32 at least or whole."""
        if fact.shape == "[N, T]":
            x = self._whole(x, name, mask.shape) if fact.kind.whole else self.tokens(x, name, mask)
            x = x.masked_fill(~mask, 0) if fact.kind.whole and not fact.context else x
        elif fact.shape == "[N]":
            x = self._whole(x, name, mask.shape[:1]) if fact.kind.whole else self._numbers(x, name, len(mask))
        else:
            x = self._columns(x, name, len(mask))
        if fact.kind.bounded:
            self._inside(x, name, fact.kind, mask)
        if fact.ascending:
            self._ascending(x, name, mask)
        return x.detach()

    def tokens(self, x: Any, name: str, mask: Tensor) -> Tensor:
        """An [N, T] field with its padding zeroed, finite on response tokens, float32 at least."""
        self.shape(x, name, tuple(mask.shape))
        if not x.is_floating_point():
            raise TokenPOError(f"{self.owner}.{name} has dtype {x.dtype}, expected a floating-point tensor")
        x = masked.keep(x.float() if x.dtype in HALF else x, mask)
        # One reduction instead of N·T flags: a finite sum has finite terms. A sum that is not finite may still be an
        # overflow of finite ones, so only then is each looked at.
        if not math.isfinite(x.detach().sum().item()):
            bad = ~torch.isfinite(x.detach())
            if bad.any():
                row, column = bad.nonzero()[0].tolist()
                raise NotFinite(
                    f"{self.owner}.{name}[{row}, {column}] is {x[row, column].item()} on a response token: "
                    "find what produced it (an overflow in the forward pass, or a wrong mask)",
                    row,
                )
        return x

    def _whole(self, x: Any, name: str, shape: tuple[int, ...]) -> Tensor:
        self.shape(x, name, tuple(shape))
        if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
            raise TokenPOError(f"{self.owner}.{name} has dtype {x.dtype}, expected integers such as torch.long")
        return x

    def _numbers(self, x: Any, name: str, n: int) -> Tensor:
        self.shape(x, name, (n,))
        return self._real(x, name, ~torch.isfinite(x))

    def _columns(self, x: Any, name: str, n: int) -> Tensor:
        """[N, R], R not 0; NaN is let pass, infinity is not."""
        self._tensor(x, name)
        if x.dim() != 2 or len(x) != n or not x.shape[1]:
            raise TokenPOError(f"{self.owner}.{name} has shape {list(x.shape)}, expected [N, R] with N = {n}")
        return self._real(x, name, x.isinf())

    def _real(self, x: Tensor, name: str, bad: Tensor) -> Tensor:
        """x as float32 at least, where none of its numbers is bad."""
        if x.is_complex():
            raise TokenPOError(f"{self.owner}.{name} has dtype {x.dtype}, expected real numbers")
        if bad.any():
            place = bad.nonzero()[0].tolist()
            raise NotFinite(
                f"{self.owner}.{name}{place} is {float(x[tuple(place)])}: it must be finite, mend what made it",
                place[0],
            )
        return x.float() if x.dtype in HALF or not x.is_floating_point() else x

    def _inside(self, x: Tensor, name: str, kind: Kind, mask: Tensor) -> None:
        """Every number that counts lies in the range of its kind."""
        bad = kind.outside(x.detach())
        bad = bad & mask if bad.shape == mask.shape else bad
        if bad.any():
            place = bad.nonzero()[0].tolist()
            raise TokenPOError(f"{self.owner}.{name}{place} is {x[tuple(place)].item():g}, but {kind.words}")

    def _ascending(self, x: Tensor, name: str, mask: Tensor) -> None:
        """x, its padding zeroed, is nowhere smaller than at an earlier response token of the row."""
        falls = mask & (x < x.cummax(1).values)
        if falls.any():
            row, column = falls.nonzero()[0].tolist()
            raise TokenPOError(
                f"{self.owner}.{name}[{row}, {column}] is {int(x[row, column])}, less than at an earlier token: "
                "number the turns of a response in their order"
            )

    def _tensor(self, x: Any, name: str) -> None:
        if not isinstance(x, Tensor):
            raise TokenPOError(f"{self.owner}.{name} must be a tensor, got {type(x).__name__}")
