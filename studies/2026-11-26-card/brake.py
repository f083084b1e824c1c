"""A candidate: CISPO with a brake on its lower side."""

import dataclasses
from typing import Annotated

import tokenpo
from tokenpo.core.parts import DetachedClip, FixedBounds, Region, TokenRatio
from tokenpo.core.ranges import Share
from tokenpo.core.types import Batch
from tokenpo.methods.options import High


class NotFallen(Region):
    """Tokens that are to become likelier, or whose ratio is still 1 - low or more."""

    low: Share

    def __call__(self, batch: Batch):
        return (batch.credit.advantage >= 0) | (TokenRatio()(batch).detach() >= 1 - self.low)


def brake(
    *, low: Annotated[Share, "how far a probability falls before its token is left out"] = 0.2, high: High = 0.28
):
    """CISPO, but a token that is to become less likely, and already is by `low`, gets no gradient."""
    surrogate = DetachedClip(FixedBounds(1.0, high), region=NotFallen(low))
    return dataclasses.replace(tokenpo.method("cispo"), name="brake", surrogate=surrogate)
