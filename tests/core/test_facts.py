"""Declarations: of inputs, which reach every reader, and of ranges, with the error of a value outside."""

from __future__ import annotations

import dataclasses
import math
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import torch

import tokenpo
from tokenpo.base.errors import OutOfRange
from tokenpo.core import ranges, types
from tokenpo.core.facts import collision, entropy, entropy_drift, facts_of
from tokenpo.core.parts import Part
from tokenpo.core.ranges import Range
from tokenpo.core.trial import example
from tokenpo.core.types import FACTS, OPTIONAL, Fields, Policy, Rollouts
from tokenpo.runs.rollouts.response import KNOWN

ADDED = re.search(r"```diff\n(.*?)```", (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("name", sorted(OPTIONAL))
def test_an_input_is_drawn_checked_recorded_and_explained(name: str) -> None:
    """`example` makes values that are accepted, and so is its neutral value where that is a number."""
    inputs, fact = example(), FACTS[name]
    owner = Rollouts if name in inputs.rollouts else Policy
    assert f"{name}: {fact.described}" in (owner.__doc__ or "") and not fact.meaning.endswith(".")
    assert name in KNOWN
    given = {**inputs.rollouts, **inputs.policy}
    assert owner.of(given, {name}).need(name).shape == given[name].shape
    assert owner.of(given, ()).only({name}) and getattr(owner.of(given, ()), name) is None
    if isinstance(fact.neutral, float) and fact.shape == "[N, T]":
        neutral = torch.full_like(given["old_logprob"], fact.neutral)
        owner.of({**given, name: neutral.long() if fact.kind.whole else neutral}, {name})


def test_the_input_that_contributing_adds() -> None:
    """Its declaration is read as those of `Rollouts`: the likeliest of 1/2, 3/8 and 1/8 has 1/2."""
    assert ADDED is not None
    lines = [line[1:] for line in ADDED[1].splitlines() if line.startswith("+    ")]
    space = {**vars(types), "dataclass": dataclasses.dataclass}
    exec("@dataclass(frozen=True, eq=False)\nclass More(Fields):\n" + "\n".join(lines), space)
    more = space["More"]
    assert issubclass(more, Fields)
    (name,) = facts_of(more)
    assert name not in FACTS, "it has become a real one: show another"
    formula = facts_of(more)[name].formula
    assert formula is not None
    assert float(formula(torch.tensor([0.5, 0.375, 0.125]).log())) == pytest.approx(0.5)


def test_formulas_by_hand() -> None:
    """Of 1/2, 1/4, 1/4: H = 3/2 bits, Σ p² = 3/8, Σ p² (log p + H) = 1/4 · 1/2 bit − 2 · 1/16 · 1/2 bit = 1/16 bit."""
    logp, bit = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64).log(), torch.tensor(2.0).log().double()
    assert float(entropy(logp) / bit) == pytest.approx(1.5, rel=1e-6)
    assert float(collision(logp)) == pytest.approx(0.375)
    assert float(entropy_drift(logp) / bit) == pytest.approx(1 / 16, rel=1e-6)


def test_an_absent_input_is_named_with_its_shape() -> None:
    rollouts = example().values()[0].only(())
    with pytest.raises(tokenpo.TokenPOError, match=r"give Rollouts\(prompt_logprob=...\) with shape \[N\]"):
        rollouts.need("prompt_logprob")


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
