"""Parts of an objective, and signals: per-token features computed once, keyed by their own value.

A signal is a frozen value. Two stages that hold equal signals share one tensor, and a report can ask for it by name.
"""

from .base import BatchSignal, Look, Memory, MemorySignal, Part, Signal, walk
from .entropy import CurrentEntropyQuantile, CurrentEntropyScore, OldEntropyQuantile, OldEntropyScore
from .kinds import check_kinds

__all__ = [
    "BatchSignal",
    "CurrentEntropyQuantile",
    "CurrentEntropyScore",
    "Look",
    "Memory",
    "MemorySignal",
    "OldEntropyQuantile",
    "OldEntropyScore",
    "Part",
    "Signal",
    "check_kinds",
    "walk",
]
