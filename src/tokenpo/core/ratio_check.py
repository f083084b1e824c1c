"""Checks that before the first update on a batch the current policy is the one that sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..base.errors import Unsupported

# Nats: limit of the largest difference in full precision; in half, where single tokens may be far off, of the mean.
FULL_TOLERANCE, HALF_TOLERANCE = 1e-3, 0.05


@dataclass(frozen=True)
class RatioCheck:
    """Requires that two forward passes over the same weights agree.

    Args:
        host: name of the training loop, for messages.
        remedy: end of the message about a disagreement.
        tolerance: largest |log-prob − old log-prob|, nats.
        over: compare the largest over the tokens, or the mean.

    Raises:
        Unsupported: by the call, if the passes disagree.
    """

    host: str = "this loop"
    remedy: str = "take old_logprob from the forward pass of the trainer, in its precision and without dropout"
    tolerance: float = FULL_TOLERANCE
    over: Literal["largest", "mean"] = "largest"

    def __call__(self, method: str, largest: float, mean: float) -> None:
        distance = largest if self.over == "largest" else mean
        if not distance <= self.tolerance:
            raise Unsupported(
                f"{method}: before the first update the ratio of new to old policy is not 1 in {self.host}: the "
                f"{self.over} |log-prob of the trainer - old log-prob| is {distance:.2g} nats, above "
                f"{self.tolerance:g}: {self.remedy}"
            )


STRICT = RatioCheck()
