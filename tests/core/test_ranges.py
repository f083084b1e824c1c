"""Ranges at their ends, and the error of a value outside."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass

import numpy as np
import pytest

from tokenpo.base.errors import OutOfRange
from tokenpo.core import ranges
from tokenpo.core.ranges import Range


@pytest.mark.parametrize(
    ("allowed", "inside", "outside"),
    [
        (ranges.NUMBER, (-math.inf, 0, 1e308, math.inf, np.float32(1), np.int64(3)), ()),
        (ranges.FINITE, (-1e308, 0, 1e308), (-math.inf, math.inf)),
        (ranges.POSITIVE, (5e-324, 1e308), (0, -0.0, -1, math.inf)),
        (ranges.NOT_NEGATIVE, (0, -0.0, 1e308), (-5e-324, math.inf)),
        (ranges.SHARE, (0, 1), (-5e-324, np.nextafter(1, 2))),
        (ranges.FRACTION, (5e-324, 1), (0, np.nextafter(1, 2))),
        (ranges.at_least(2), (2, 1e308), (np.nextafter(2, 1), math.inf)),
        (ranges.limit(2), (2, math.inf), (np.nextafter(2, 1), -math.inf)),
        (ranges.above(2), (np.nextafter(2, 3), math.inf), (2, -math.inf)),
        (ranges.between(-1, 2), (-1, 2), (np.nextafter(-1, -2), np.nextafter(2, 3))),
        (ranges.inside(-1, 2), (np.nextafter(-1, 0), np.nextafter(2, 1)), (-1, 2)),
        (ranges.whole(1), (1, 10**30, np.int64(7)), (0, 1.0, 1.5, math.inf)),
        (ranges.whole(1, 4), (1, 4), (0, 5)),
    ],
)
def test_a_range_ends_where_it_says(allowed: Range, inside: tuple[float, ...], outside: tuple[float, ...]) -> None:
    assert [x for x in inside if not allowed.holds(x)] == []
    assert [x for x in (*outside, math.nan, True, "1", None) if allowed.holds(x)] == []
    assert allowed.or_none().holds(None) and not allowed.or_none().holds(math.nan)


@dataclass(frozen=True)
class Held:
    share: float

    def __post_init__(self) -> None:
        ranges.require(self, share=ranges.SHARE.because("as it is a share"))


def test_a_refusal_is_one_sentence_and_goes_through_a_pipe() -> None:
    with pytest.raises(OutOfRange) as raised:
        Held(1.5)
    sentence = "Held: share is 1.5, expected a number in [0, 1], as it is a share"
    assert str(raised.value) == str(pickle.loads(pickle.dumps(raised.value))) == sentence
