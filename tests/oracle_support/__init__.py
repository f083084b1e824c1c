"""What the method tests share: random batches, the oracles by name, and the library run on the same numbers."""

from .batches import Sample, ragged
from .running import Outcome, agrees, close, run, score

__all__ = ["Outcome", "Sample", "agrees", "close", "ragged", "run", "score"]
