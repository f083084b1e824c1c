"""What the stages of an objective return, held to their protocol: an error names the stage, not an operation of torch.

Every loss asks, so kinds and shapes are compared and no number is looked at.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .errors import TokenPOError
from .types import Trust

_AXES = {1: "[N]", 2: "[N, T]"}
_TRUST = {field: f"Trust.{field} of surrogate" for field in ("value", "ratio", "clipped")}


def tensor(x: Any, like: Tensor, name: str, slot: str, stage: Any) -> Tensor:
    """x, if it is a tensor of the shape of `like`: [N] or [N, T].

    Args:
        name: of the objective.
        slot: what the stage is to the objective.
    """
    if isinstance(x, Tensor) and x.shape == like.shape:
        return x
    raise _wrong(x, name, slot, stage, f"a tensor of shape {_AXES[like.dim()]} = {list(like.shape)}")


def trust(x: Any, mask: Tensor, name: str, stage: Any) -> Trust:
    """x, if it is what a surrogate says of every token."""
    if not isinstance(x, Trust):
        raise _wrong(x, name, "surrogate", stage, "a Trust")
    for field in _TRUST:
        tensor(getattr(x, field), mask, name, _TRUST[field], stage)
    return x


def coefficient(x: Any, mask: Tensor, name: str, stage: Any) -> Tensor | float:
    """x, if it is a number, [N, 1] or [N, T]."""
    n, t = mask.shape
    if isinstance(x, (float, int)) or (isinstance(x, Tensor) and x.shape in ((n, 1), (n, t), ())):
        return x
    raise _wrong(x, name, "aggregate", stage, f"a number or a tensor of shape [N, 1] or [N, T] = {[n, t]}")


def _wrong(x: Any, name: str, slot: str, stage: Any, wanted: str) -> TokenPOError:
    seen = f"shape {list(x.shape)}" if isinstance(x, Tensor) else "None" if x is None else f"a {type(x).__name__}"
    return TokenPOError(f"objective {name}: {slot} {stage!r} returned {seen}: let its __call__ return {wanted}")
