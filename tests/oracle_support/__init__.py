"""What the method tests share: random batches, the oracles by name, and the library run on the same numbers."""

from .batches import Sample, by_hand, holed, of, ragged
from .running import (
    OPTIONAL,
    POLICY_FIELDS,
    Outcome,
    agrees,
    assemble,
    batches,
    close,
    facts,
    moves,
    outcome,
    run,
    score,
    source,
    tensors,
)

__all__ = [
    "OPTIONAL",
    "POLICY_FIELDS",
    "Outcome",
    "Sample",
    "agrees",
    "assemble",
    "batches",
    "by_hand",
    "close",
    "facts",
    "holed",
    "moves",
    "of",
    "outcome",
    "ragged",
    "run",
    "score",
    "source",
    "tensors",
]
