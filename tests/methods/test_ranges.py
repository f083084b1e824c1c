"""Every number of a method or a part: without a meaning it is refused by name, else losses are finite."""

import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import tokenpo
from tokenpo.base.errors import OutOfRange
from tokenpo.core import trial
from tokenpo.core.objective import Objective
from tokenpo.core.parts.loss import ReferenceKl
from tokenpo.core.ranges import Share
from tokenpo.methods import METHODS, Paper, options_of

NUMBERS = (math.nan, math.inf, -math.inf, -1.0, 0.0, 2.0)
WHOLE = (-1, 0, 2)
TRIED: dict[str, tuple[Any, ...]] = {
    "float": NUMBERS,
    "int": WHOLE,
    "tuple": tuple((a, b) for a in NUMBERS for b in NUMBERS),
}
SENTENCE = re.compile(
    r"(method )?(?P<method>\w+): (option )?(?P<option>\w+)"
    r"(?P<part> of \w+)? (is .+, expected .+|= .+ must be .+|= .+ takes the place of the baseline: .+)"
)
# What an option needs beside it to have an effect.
BESIDE: dict[str, dict[str, Any]] = {
    "dapo": {"overlong_length": 4, "overlong_cache": 3},
    "tr_grpo": {"beta": 0.1, "kl_weighting": "inside"},
    "cispo": {"high": 1.5},
}
# The field of a part that the message names instead, where two options do not go together.
TOGETHER = {
    ("tr_grpo", "lower"): "upper",
    ("tr_grpo", "upper"): "upper",
    ("clip_cov", "cov_low"): "cov_high",
    ("clip_cov", "cov_high"): "cov_high",
    ("dapo", "overlong_length"): "cache",
    ("dapo", "overlong_cache"): "cache",
    ("aer", "start"): "initial",
    ("skywork_entropy", "start"): "initial",
    ("fipo", "least"): "most",
    ("fipo", "most"): "most",
}


def _settings(name: str) -> Iterator[dict[str, Any]]:
    """Without options, and with each switch and each word of the method, one at a time."""
    yield BESIDE.get(name, {})
    for key, option in options_of(METHODS[name]).items():
        for value in [not option.default] if "bool" in option.kinds else option.choices:
            yield {**BESIDE.get(name, {}), key: value}


def _tried(name: str) -> Iterator[tuple[str, Any]]:
    for key, option in options_of(METHODS[name]).items():
        for kind in option.kinds:
            for value in TRIED.get(kind.partition("[")[0], ()):
                yield key, value


def _is_finite(objective: Objective) -> bool:
    """Loss and gradients, before and after a rollout batch has gone into the memories."""
    inputs = trial.example()
    if weights := getattr(objective.credit, "weights", ()):  # one for each reward
        inputs = inputs.replace(rewards=inputs.rollouts["rewards"][:, : len(weights)])
    found = inputs.evaluate(objective)
    rollouts = tokenpo.Rollouts.of(inputs.rollouts)
    credit = objective.prepare(rollouts, objective.after(objective.start(), rollouts))
    tensors = (found.loss.value, found.gradient, found.entropy_gradient, credit.advantage)
    remembered = (x[rollouts.mask] for x in credit.signals.values())
    return all(bool(torch.isfinite(x).all()) for x in (*tensors, *remembered))


@pytest.mark.parametrize("name", METHODS)
def test_every_number_names_its_range(name: str) -> None:
    for key, option in options_of(METHODS[name]).items():
        numeric = {"float", "int", "tuple[float, float]", "tuple[float, ...]"} & {*option.kinds}
        assert bool(numeric) == (option.allowed is not None), key


@pytest.mark.parametrize("name", METHODS)
def test_an_option_without_meaning_is_refused_by_name(name: str) -> None:
    for settings in _settings(name):
        for option, value in _tried(name):
            given = {**settings, option: value}
            try:
                objective = tokenpo.method(name, **given)
            except tokenpo.TokenPOError as error:
                said = SENTENCE.fullmatch(str(error))
                assert said and said["method"] == name, f"{given}: {error}"
                own = said["option"] == option and not said["part"]
                assert own or said["option"] == TOGETHER.get((name, option)), f"{given}: {error}"
            else:
                assert _is_finite(objective), f"{name} {given} is accepted"


GRPO = METHODS["grpo"]()


BOTH = "the soft overlong penalty needs both overlong_length and overlong_cache"
SENTENCES: list[tuple[str, dict[str, Any], str]] = [
    ("dr_grpo", {"length": 0}, "length is 0, expected a finite number > 0, or none"),
    ("thr", {"p": 1.0}, "p is 1.0, expected a number in (-1, 1), or advantages would vanish or change sign"),
    # another kind
    *(("grpo", {"low": x}, f"option low = {x!r} must be a number") for x in (True, "0.2", math.nan, None)),
    ("maxrl", {"order": 1.5}, "option order = 1.5 must be a whole number or none"),
    ("cispo", {"absolute": 1}, "option absolute = 1 must be true or false"),
    ("gtpo", {"entropy_clamp": (1, True)}, "option entropy_clamp = (1, True) must be two numbers or none"),
    ("maxrl", {"baseline": "keep"}, "baseline='keep' is not a choice; did you mean 'kept'?"),
    ("dapo", {"overlong_length": 8}, BOTH),
    ("gtpo", {"entropy_clamp": (3, 2)}, "entropy_clamp is (3, 2), expected (low, high) with 0 <= low <= high, or none"),
    # of two that do not go together by the part and its field
    (
        "maxrl",
        {"order": 2, "baseline": "none"},
        "order = 2 takes the place of the baseline: leave out baseline = 'none'",
    ),
    ("tr_grpo", {"upper": 0.5}, "upper of Sigmoid is 0.5, expected a finite number >= 1.0, the smallest weight"),
    ("hapo", {"low": 0.6}, "low · (1 + alpha) of AdaptiveBounds is 1.2, expected a number in [0, 1]"),
]


@pytest.mark.parametrize(("name", "options", "message"), SENTENCES)
def test_the_sentence(name: str, options: dict[str, Any], message: str) -> None:
    for build in (lambda **o: tokenpo.method(name, **o), METHODS[name]):
        with pytest.raises(tokenpo.TokenPOError) as raised:
            build(**options)
        assert str(raised.value).removeprefix("method ") == f"{name}: {message}"


def test_a_published_method_of_the_users_own_is_held_to_the_ranges_of_its_options_and_parts() -> None:
    @Paper("An example", "0000.00000", "own")
    def mine(*, share: Share | None = 0.1, strength: float = 0.1) -> Objective:
        return dataclasses.replace(GRPO, penalties=(ReferenceKl(strength),))

    assert mine(share=None).name == "mine"
    with pytest.raises(OutOfRange, match=r"^mine: beta of ReferenceKl is -1, expected a finite number >= 0$"):
        mine(strength=-1)
    with pytest.raises(OutOfRange, match=r"^mine: share is 2, expected a number in \[0, 1\], or none$"):
        mine(share=2)
