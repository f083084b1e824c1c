"""The check of every host that the policy is the one that sampled, before anything has moved it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..base.errors import Unsupported

# Nats: what one wrong token may be off in full precision, and what the mean may be in half, where single tokens may be
# far off.
FULL_TOLERANCE, HALF_TOLERANCE = 1e-3, 0.05


@dataclass(frozen=True)
class RatioCheck:
    """Before the first update on a batch the policy is the one that sampled: two forward passes must agree.

    Args:
        host: in whose words a disagreement is told.
        remedy: what to do about it.
        tolerance: of |log-prob − old log-prob|, nats.
        over: the largest of a token, or the mean.
    """

    host: str = "this loop"
    remedy: str = "take old_logprob from the forward pass of the trainer, in its precision and without dropout"
    tolerance: float = FULL_TOLERANCE
    over: Literal["largest", "mean"] = "largest"

    def __call__(self, method: str, largest: float, mean: float) -> None:
        """
        Raises:
            Unsupported: they do not agree.
        """
        seen = largest if self.over == "largest" else mean
        if not seen <= self.tolerance:
            raise Unsupported(
                f"{method}: before the first update the ratio of new to old policy is not 1 in {self.host}: the "
                f"{self.over} |log-prob of the trainer - old log-prob| is {seen:.2g} nats, above "
                f"{self.tolerance:g}: {self.remedy}"
            )


STRICT = RatioCheck()
