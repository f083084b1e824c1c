"""What the method tests share: random batches, the oracles by name, and the library run on the same numbers."""

from .batches import Sample, by_hand, of, ragged
from .running import OPTIONAL, Outcome, agrees, assemble, close, module, run, score, tensors

__all__ = [
    "OPTIONAL",
    "Outcome",
    "Sample",
    "agrees",
    "assemble",
    "by_hand",
    "close",
    "module",
    "of",
    "ragged",
    "run",
    "score",
    "tensors",
]
