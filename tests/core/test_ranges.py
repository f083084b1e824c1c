"""Ranges at their ends, and the error of a value outside."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest

from tokenpo.base.errors import OutOfRange
from tokenpo.core import ranges
from tokenpo.core.parts import Part
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


@pytest.mark.parametrize(
    ("hint", "text", "inside", "outside"),
    [
        (ranges.Share, "a number in [0, 1]", (0, 1), (2, None)),
        (ranges.Share | None, "a number in [0, 1], or none", (0, None), (2, math.nan, "1")),
        (ranges.Count | str, "a whole number >= 1, or a value of type str", (1, "1"), (0, None)),
        (float | Exception, "a number, or a value of type Exception", (-1, OSError()), (math.nan, "1", None)),
        (Exception | None, "a value of type Exception, or none", (None, OSError()), (1, Exception)),
    ],
)
def test_an_annotation_names_a_range(hint: Any, text: str, inside: tuple, outside: tuple) -> None:
    allowed = ranges.range_of(hint, Exception)
    assert allowed is not None and allowed.text == text
    assert [x for x in inside if not allowed.holds(x)] == []
    assert [x for x in outside if allowed.holds(x)] == []


@pytest.mark.parametrize("hint", [float, float | None, str, tuple[float, float], Any, "Share"])
def test_another_annotation_names_none(hint: Any) -> None:
    assert ranges.range_of(hint, Exception) is None


@dataclass(frozen=True)
class Held(Part):
    share: Annotated[float, ranges.SHARE.because("as it is a share")]


def test_a_refusal_is_one_sentence_and_goes_through_a_pipe() -> None:
    with pytest.raises(OutOfRange) as raised:
        Held(1.5)
    sentence = "Held: share is 1.5, expected a number in [0, 1], as it is a share"
    assert str(raised.value) == str(pickle.loads(pickle.dumps(raised.value))) == sentence
