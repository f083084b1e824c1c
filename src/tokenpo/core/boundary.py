"""Where tensors enter: shapes, kinds and finiteness are checked once, and padding is zeroed once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..base.errors import NotFinite, TokenPOError
from .ops import masked

HALF = (torch.float16, torch.bfloat16)
# How far, in nats, the rounding of other engines may carry a number over 0. The entropy's is large because some engines
# take it as the difference of two large numbers in bf16.
LOGPROB_SLACK, ENTROPY_SLACK = 0.05, 0.5


@dataclass(frozen=True)
class Boundary:
    """Checks the fields of one value; every message begins with its name.

    Args:
        owner: the value that the fields belong to.
    """

    owner: str

    def mask(self, x: Any) -> tuple[int, int]:
        """(N, T) of x, which must be a boolean mask with at least one true entry."""
        self._tensor(x, "mask")
        if x.dim() != 2:
            raise TokenPOError(f"{self.owner}.mask has shape {list(x.shape)}, expected [N, T]")
        if x.dtype != torch.bool:
            raise TokenPOError(f"{self.owner}.mask has dtype {x.dtype}, expected torch.bool: convert it")
        if x.numel() == 0:
            raise TokenPOError(f"{self.owner}.mask has shape {list(x.shape)}: the batch is empty")
        if not x.any():
            raise TokenPOError(f"{self.owner}.mask is false everywhere: no rollout has a response token")
        n, t = x.shape
        return n, t

    def shape(self, x: Any, name: str, shape: tuple[int, ...]) -> None:
        """x must be a tensor of that shape."""
        self._tensor(x, name)
        if tuple(x.shape) != shape:
            axes = "[N, T]" if len(shape) == 2 else "[N]"
            raise TokenPOError(f"{self.owner}.{name} has shape {list(x.shape)}, expected {axes} = {list(shape)}")

    def numbers(self, x: Any, name: str, shape: tuple[int, ...]) -> Tensor:
        """x as float32 at least; its numbers must be finite."""
        self.shape(x, name, shape)
        if x.is_complex():
            raise TokenPOError(f"{self.owner}.{name} has dtype {x.dtype}, expected real numbers")
        bad = ~torch.isfinite(x)
        if bad.any():
            row = int(bad.nonzero()[0, 0])
            raise NotFinite(f"{self.owner}.{name}[{row}] is {float(x[row])}: it must be finite, mend what made it", row)
        return x.float() if x.dtype in HALF or not x.is_floating_point() else x

    def ids(self, x: Any, name: str, shape: tuple[int, ...]) -> None:
        """x must hold integers, none of them negative where its shape is [N]."""
        self.shape(x, name, shape)
        if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
            raise TokenPOError(f"{self.owner}.{name} has dtype {x.dtype}, expected integers such as torch.long")
        if x.dim() == 1 and (x < 0).any():
            row = int((x < 0).nonzero()[0, 0])
            raise TokenPOError(f"{self.owner}.{name}[{row}] is {int(x[row])}: number the prompts from 0")

    def columns(self, x: Any, name: str, n: int) -> Tensor:
        """x [N, R] as float32 at least, R not 0; NaN is let pass, infinity is not."""
        self._tensor(x, name)
        if x.dim() != 2 or len(x) != n or not x.shape[1]:
            raise TokenPOError(f"{self.owner}.{name} has shape {list(x.shape)}, expected [N, R] with N = {n}")
        if x.is_complex():
            raise TokenPOError(f"{self.owner}.{name} has dtype {x.dtype}, expected real numbers")
        if x.isinf().any():
            row, column = x.isinf().nonzero()[0].tolist()
            raise NotFinite(f"{self.owner}.{name}[{row}, {column}] is {float(x[row, column])}: it must be finite", row)
        return x.float() if x.dtype in HALF or not x.is_floating_point() else x

    def numbering(self, x: Any, name: str, mask: Tensor) -> Tensor:
        """An [N, T] field of integers, none of them negative on a response token, with its padding zeroed."""
        self.ids(x, name, tuple(mask.shape))
        x = x.masked_fill(~mask, 0)
        if (x < 0).any():
            row, column = (x < 0).nonzero()[0].tolist()
            raise TokenPOError(f"{self.owner}.{name}[{row}, {column}] is {int(x[row, column])}: number from 0")
        return x

    def ascending(self, x: Tensor, name: str, mask: Tensor) -> None:
        """x, its padding zeroed, must nowhere be smaller than at an earlier response token of the row."""
        falls = mask & (x < x.cummax(1).values)
        if falls.any():
            row, column = falls.nonzero()[0].tolist()
            raise TokenPOError(
                f"{self.owner}.{name}[{row}, {column}] is {int(x[row, column])}, less than at an earlier token: "
                "number the turns of a response in their order"
            )

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
                row, column = (int(i) for i in bad.nonzero()[0])
                raise NotFinite(
                    f"{self.owner}.{name}[{row}, {column}] is {x[row, column].item()} on a response token: "
                    "find what produced it (an overflow in the forward pass, or a wrong mask)",
                    row,
                )
        return x

    def positive(self, x: Tensor, name: str, mask: Tensor) -> None:
        """x must be positive on response tokens."""
        if not (x.masked_fill(~mask, 1.0) > 0).all():
            raise TokenPOError(f"{self.owner}.{name} must be > 0 on every response token")

    def logprobs(self, x: Tensor, name: str) -> None:
        """x, its padding already zeroed, must nowhere exceed 0 by more than rounding."""
        if (worst := x.max()) > LOGPROB_SLACK:
            raise self._wrong_sign(x, name, worst, "log-probabilities are <= 0: give log p, not -log p")

    def entropies(self, x: Tensor, name: str) -> None:
        """x, its padding already zeroed, must nowhere be below 0 by more than rounding."""
        if (worst := x.min()) < -ENTROPY_SLACK:
            raise self._wrong_sign(x, name, worst, "entropies are >= 0: give -Σ p log p, not Σ p log p")

    def _wrong_sign(self, x: Tensor, name: str, worst: Tensor, words: str) -> TokenPOError:
        place = (x == worst).nonzero()[0].tolist()
        return TokenPOError(f"{self.owner}.{name}{place} is {worst.item():g}, but {words}")

    def _tensor(self, x: Any, name: str) -> None:
        if not isinstance(x, Tensor):
            raise TokenPOError(f"{self.owner}.{name} must be a tensor, got {type(x).__name__}")
