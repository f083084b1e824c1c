"""Per-token estimators of KL(q ‖ p) from x = log p − log q at a token sampled from q, in nats. Shapes pass through.

Schulman's names: k1 is unbiased and signed, k2 is half the square, k3 is unbiased and non-negative.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .sloped import sloped

# Nats, about ten times what two float32 passes of a tiny model over the same weights leave between them.
ROUNDING = 1e-5


def k1(x: Tensor) -> Tensor:
    """−x."""
    return -x


def k2(x: Tensor) -> Tensor:
    """x² / 2."""
    return x.square() / 2


def k3(x: Tensor) -> Tensor:
    """eˣ − 1 − x, as expm1(x) − x to keep small values exact, with the slope expm1(x); torch would take eˣ − 1."""
    slope = x.detach().expm1()
    return sloped(slope - x.detach(), x, slope)


def k3_within(x: Tensor, reach: float, most: float) -> Tensor:
    """k3 of x bounded to ±reach nats, at most `most` nats; flat where either bound binds."""
    return k3(x.clamp(-reach, reach)).clamp(max=most)


def absolute(x: Tensor) -> Tensor:
    """|x|, flat within ±1e-5: of the same policy, scored by two engines, x is rounding, whose sign means nothing."""
    size = x.abs()
    return torch.where(size > ROUNDING, size, size.detach())
