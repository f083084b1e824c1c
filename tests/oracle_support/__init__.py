"""What the method tests share: random batches, the oracles by name, and the library run on the same numbers."""

# isort: off
from .batches import Sample as Sample, by_hand as by_hand, holed as holed, of as of, ragged as ragged
from .running import OPTIONAL as OPTIONAL, POLICY_FIELDS as POLICY_FIELDS, Outcome as Outcome, agrees as agrees
from .running import assemble as assemble, batches as batches, close as close, facts as facts, moves as moves
from .running import outcome as outcome, run as run, score as score, tensors as tensors
from .running import worked as worked
