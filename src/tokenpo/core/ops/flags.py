"""Comparisons as numbers: 1 where they hold, 0 elsewhere, in dtype and shape of `a`, without gradient.

On a CPU torch writes the result of a comparison as floats faster than as bools, even followed by `.bool()`, and a
product with it selects faster than `where`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import masked


def less(a: Tensor, b: Tensor | float) -> Tensor:
    """a < b."""
    return _flag(torch.lt, a, b)


def greater(a: Tensor, b: Tensor | float) -> Tensor:
    """a > b."""
    return _flag(torch.gt, a, b)


def at_most(a: Tensor, b: Tensor | float) -> Tensor:
    """a ≤ b."""
    return _flag(torch.le, a, b)


def equal(a: Tensor, b: Tensor | float) -> Tensor:
    """a = b."""
    return _flag(torch.eq, a, b)


def number(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x as `dtype`; a bool becomes 1 where it is true, else 0."""
    return masked.ones(x, dtype) if x.dtype == torch.bool else x.to(dtype)


def _flag(compare: Any, a: Tensor, b: Tensor | float) -> Tensor:
    # No comparison has a gradient, so `out` may be given where `a` has a graph.
    return compare(a, b, out=torch.empty_like(a))
