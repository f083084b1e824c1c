"""The tensors that made a loss, by name: what reports draw and metrics read."""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor

from ..base.errors import choose
from .types import Batch, Trust


def terms_of(
    batch: Batch,
    trust: Trust,
    weight: Tensor | None,
    penalty: Tensor | None,
    coefficient: Tensor,
    token: Tensor,
    names: Collection[str] | None,
) -> dict[str, Tensor]:
    """Detached tensors [N, T] by name, as the stages made them; on padding the coefficient is 0, the others anything.

    Args:
        weight: product of the weights; None is 1.
        penalty: sum of the penalties; None is 0.
        coefficient: of each token's loss in the sum.
        token: each token's loss.
        names: the terms to keep; None keeps all.

    Raises:
        UnknownName: no such term.
    """
    found: dict[str, Tensor | float] = {
        "advantage": batch.credit.advantage,
        "ratio": trust.ratio,
        "low": trust.lower,
        "high": trust.upper,
        "clipped": trust.clipped,
        "weight": 1.0 if weight is None else weight,
        "surrogate": trust.value,
        "penalty": 0.0 if penalty is None else penalty,
        "coefficient": coefficient,
        "loss": token,
    }
    kept = found if names is None else {name: choose("loss: term", name, found) for name in names}
    return {name: _shown(x, token) for name, x in kept.items()}


def _shown(value: Tensor | float, like: Tensor) -> Tensor:
    value = value.detach() if isinstance(value, Tensor) else like.new_full((), value)
    return value if value.shape == like.shape else value.expand_as(like)
