"""Comparisons as numbers: 1 where they hold, 0 elsewhere, in the dtype of `a`, without gradient.

torch compares floats into floats six times as fast as into bools, `.bool()` included, and a product with the answer is
a choice. `a` has the shape of the result.
"""

from __future__ import annotations

import torch
from torch import Tensor


def less(a: Tensor, b: Tensor | float) -> Tensor:
    return torch.lt(a.detach(), _plain(b), out=torch.empty_like(a, requires_grad=False))


def greater(a: Tensor, b: Tensor | float) -> Tensor:
    return torch.gt(a.detach(), _plain(b), out=torch.empty_like(a, requires_grad=False))


def at_most(a: Tensor, b: Tensor | float) -> Tensor:
    return torch.le(a.detach(), _plain(b), out=torch.empty_like(a, requires_grad=False))


def equal(a: Tensor, b: Tensor | float) -> Tensor:
    return torch.eq(a.detach(), _plain(b), out=torch.empty_like(a, requires_grad=False))


def unequal(a: Tensor, b: Tensor | float) -> Tensor:
    return torch.ne(a.detach(), _plain(b), out=torch.empty_like(a, requires_grad=False))


def _plain(x: Tensor | float) -> Tensor | float:
    return x.detach() if isinstance(x, Tensor) else x
