"""Each engine's loss path on frozen rollouts of a tiny model: the numbers of docs/parity.md."""

from __future__ import annotations

from .measure import Gap, Measured, measured

__all__ = ["Gap", "Measured", "measured"]
