"""Keeps the policy near the one that sampled: a check before the first update, and a target for the KL of a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ..base.errors import TokenPOError, Unsupported

# Nats: limit of the largest difference in full precision; in half, where single tokens may be far off, of the mean.
FULL_TOLERANCE, HALF_TOLERANCE = 1e-3, 0.05


@dataclass(frozen=True)
class RatioCheck:
    """Raises Unsupported, when called, if two forward passes over the same weights disagree.

    Args:
        host: name of the training loop, for messages.
        remedy: end of the message about a disagreement.
        tolerance: largest |log-prob − old log-prob|, nats.
        over: compare the largest over the tokens, or the mean.
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
# Multiplier of the learning rate in the first batch, its smallest and largest change from one batch to the next, and
# the share of rows with a gradient below which it may rise less.
FIRST, FALL, RISE, FEW = 0.125, 0.2, 2.0, 0.25


@dataclass(frozen=True)
class KLHold:
    """A target for the KL of a rollout batch, and a limit above which the rest of its updates are left out.

    The KL is the k3 estimate of KL(old || new), nats, averaged over the tokens of rows that can have a gradient. It is
    measured on the rows of each update before that update, and after the last update on its rows.

    Args:
        target: desired maximum of these KLs over a batch, nats per token; None leaves the learning rate alone.
        stop: limit on the KL before an update, nats per token; None is twice the target, infinity never stops.

    Raises:
        TokenPOError: a number that is not above 0, a stop at or below the target, or neither target nor stop.
    """

    target: float | None = None
    stop: float | None = None

    def __post_init__(self) -> None:
        given = [x for x in (self.target, self.stop) if x is not None]
        if not given or not all(x > 0 for x in given) or (self.target is not None and self.limit <= self.target):
            raise TokenPOError(
                f"KLHold: target is {self.target} and stop {self.stop}: give one of them or both, above 0, such as "
                "0.012 nats per token, and a stop above the target, such as twice as much"
            )

    @staticmethod
    def of(target: float | None, stop: float | None) -> KLHold | None:
        """The hold with this target and stop; None if both are None."""
        return None if target is None and stop is None else KLHold(target, stop)

    @property
    def start(self) -> float:
        """Multiplier of the first batch; 1 without a target."""
        return 1.0 if self.target is None else FIRST

    @property
    def limit(self) -> float:
        """If the KL before an update exceeds this, that update and the rest of its batch are left out."""
        if self.stop is not None:
            return self.stop
        return math.inf if self.target is None else 2 * self.target

    def next(self, rate: float, kl: float, live: float = 1.0) -> float:
        """The multiplier of the next batch.

        KL grows with the square of a small step, hence the root. A batch that trained on nothing leaves the multiplier
        alone. If few rows had a gradient, it rises by less: once rewards saturate it would double without end.

        `rate` is this batch's multiplier, `kl` its largest KL and `live` the share of rows that can have a gradient.
        """
        if self.target is None or not kl > 0:
            return rate
        most = RISE ** min(1.0, live / FEW)
        return rate * min(max(math.sqrt(self.target / kl), FALL), most)
