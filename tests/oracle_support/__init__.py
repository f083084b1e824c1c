"""What the method tests share: random batches, the oracles by name, and the library run on the same numbers."""

from .batches import Sample, by_hand, holed, of, ragged
from .running import (
    OPTIONAL,
    POLICY_FIELDS,
    Outcome,
    agrees,
    assemble,
    batches,
    cases,
    close,
    facts,
    module,
    moves,
    outcome,
    run,
    score,
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
    "cases",
    "close",
    "facts",
    "holed",
    "module",
    "moves",
    "of",
    "outcome",
    "ragged",
    "run",
    "score",
    "tensors",
]
