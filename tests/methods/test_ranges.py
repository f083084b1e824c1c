"""Every number of a method or a part: without a meaning it is refused by name, else losses are finite."""

import contextlib
import dataclasses
import math
import re
import typing
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import tokenpo
from tokenpo.base.errors import OutOfRange
from tokenpo.core import trial
from tokenpo.core.objective import Objective
from tokenpo.core.parts import HighInResponse, Keep, RolloutCorrection
from tokenpo.core.parts.credit import GroupOverlong, SoftOverlong
from tokenpo.core.parts.loss import EntropyBonus, ReferenceKl, StraightThrough
from tokenpo.core.parts.part import Part, walk
from tokenpo.core.ranges import Share, members
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


def _substituted(value: Any, part: Part, new: Part) -> Any:
    """A value with every part that equals one replaced."""
    if value == part and type(value) is type(part):
        return new
    if isinstance(value, tuple):
        return tuple(_substituted(x, part, new) for x in value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    held = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dataclasses.replace(value, **{name: _substituted(x, part, new) for name, x in held.items()})


GRPO = METHODS["grpo"]()
# Parts that no method holds by default.
ALONE = {
    "correction": dataclasses.replace(GRPO, weights=(RolloutCorrection(),)),
    "overlong": dataclasses.replace(GRPO, shaping=(SoftOverlong(4, 2), GroupOverlong())),
    "bonus": dataclasses.replace(GRPO, penalties=(EntropyBonus(0.1), ReferenceKl(0.1, StraightThrough()))),
    "high": dataclasses.replace(GRPO, weights=(Keep(HighInResponse(0.5)),)),
    "order": METHODS["maxrl"](order=3),
}


@pytest.mark.parametrize("name", [*METHODS, *ALONE])
def test_a_field_without_meaning_is_refused_by_name(name: str) -> None:
    objective = ALONE[name] if name in ALONE else METHODS[name]()
    for part in dict.fromkeys(walk(objective)):
        hints = typing.get_type_hints(type(part), include_extras=True)
        for field in dataclasses.fields(part) if dataclasses.is_dataclass(part) else ():
            kinds = {getattr(kind, "__name__", "") for kind, _ in members(hints[field.name])} & TRIED.keys()
            for value in (value for kind in kinds for value in TRIED[kind]):
                place = f"{type(part).__name__}.{field.name} = {value}"
                try:
                    changed = dataclasses.replace(part, **{field.name: value})
                except tokenpo.TokenPOError as error:
                    assert re.fullmatch(rf"{type(part).__name__}: .+ is .+, expected .+", str(error)), (
                        f"{place}: {error}"
                    )
                else:
                    assert _is_finite(_substituted(objective, part, changed)), f"{place} is accepted"


BOTH = "the soft overlong penalty needs both overlong_length and overlong_cache"
SENTENCES: list[tuple[str, dict[str, Any], str]] = [
    ("clip_cov", {"fraction": 2.0}, "fraction is 2.0, expected a number in (0, 1]"),
    ("dr_grpo", {"length": 0}, "length is 0, expected a finite number > 0, or none"),
    ("thr", {"p": 1.0}, "p is 1.0, expected a number in (-1, 1), or advantages would vanish or change sign"),
    ("hapo", {"beta": 1.01}, "beta is 1.01, expected a number in [0, 1], or advantages would change sign"),
    ("maxrl", {"order": 0}, "order is 0, expected a whole number >= 1, or none"),
    # another kind
    *(("grpo", {"low": x}, f"option low = {x!r} must be a number") for x in (True, "0.2", math.nan, None)),
    *(("ha_dw", {"history": x}, f"option history = {x} must be a whole number") for x in (2.5, True)),
    *(("maxrl", {"order": x}, f"option order = {x!r} must be a whole number or none") for x in (1.5, "3")),
    ("dapo", {"dual": [1]}, "option dual = [1] must be a number or none"),
    ("cispo", {"absolute": 1}, "option absolute = 1 must be true or false"),
    ("tepo", {"estimator": 3}, "option estimator = 3 must be text"),
    *(
        ("gtpo", {"entropy_clamp": x}, f"option entropy_clamp = {x} must be two numbers or none")
        for x in ((1,), (1, True), (1, 2, 3))
    ),
    ("maxrl", {"baseline": "keep"}, "baseline='keep' is no choice; did you mean 'kept'?"),
    ("dapo", {"overlong_length": 8}, BOTH),
    ("gtpo", {"entropy_clamp": (3, 2)}, "entropy_clamp is (3, 2), expected (low, high) with 0 <= low <= high, or none"),
    # of two that do not go together by the part and its field
    (
        "maxrl",
        {"order": 2, "baseline": "none"},
        "order = 2 takes the place of the baseline: leave out baseline = 'none'",
    ),
    (
        "dapo",
        {"overlong_length": 4, "overlong_cache": 8},
        "cache of SoftOverlong is 8, expected a whole number in 1..4, the length",
    ),
    ("tr_grpo", {"upper": 0.5}, "upper of Sigmoid is 0.5, expected a finite number >= 1.0, the smallest weight"),
    (
        "clip_cov",
        {"cov_low": 7.0},
        "cov_high of RandomCovariant is 5.0, expected a number > 7.0, the lower end of the band",
    ),
    ("hapo", {"low": 0.6}, "low · (1 + alpha) of AdaptiveBounds is 1.2, expected a number in [0, 1]"),
]


@pytest.mark.parametrize(("name", "options", "message"), SENTENCES)
def test_the_sentence(name: str, options: dict[str, Any], message: str) -> None:
    for build in (lambda **o: tokenpo.method(name, **o), METHODS[name]):
        with pytest.raises(tokenpo.TokenPOError) as raised:
            build(**options)
        assert str(raised.value).removeprefix("method ") == f"{name}: {message}"


def _accepting(value: float) -> set[str]:
    """METHOD.OPTION for every number that may have this value."""
    found = set()
    for name, build in METHODS.items():
        for key, option in options_of(build).items():
            if "float" in option.kinds:
                with contextlib.suppress(tokenpo.TokenPOError):
                    build(**{key: value})
                    found.add(f"{name}.{key}")
    return found


def test_below_zero_are_only_numbers_whose_sign_is_a_choice() -> None:
    """Ends of a scale that passes through 0, and directions; no coefficient, no bound, no length."""
    assert _accepting(-1.0) == {
        *(
            "clip_cov.cov_low gtpo.threshold grpo_s.threshold tr_grpo.tau tr_grpo.mu nthr.beta arm.alpha hmpo.shift "
            "hmpo.threshold topr.threshold vapo.threshold sdpo.threshold holder.first holder.last ktae.threshold"
        ).split()
    }
    assert "thr.p" in _accepting(-0.5) - _accepting(-1.0)


def test_infinite_are_only_limits() -> None:
    """Where there is none: the upper clip, the dual clip, a region, a cap, a target."""
    limits = {name for name in _accepting(math.inf) if name.partition(".")[2] not in ("high", "dual")}
    assert limits == {
        *(
            "clip_cov.cov_high gmpo.low dppo_tv.threshold dppo_tv.cap dppo_kl.threshold dppo_kl.cap "
            "skywork_entropy.target aer.rho nthr.beta hmpo.cap dhpo.sequence_high opsm.delta m2po.budget "
            "m2po_rollout.threshold fipo.decay fipo.safety ppo.value_clip vapo.value_clip rto.bound rto.value_clip "
            "opd.bound clip_b.mu clip_v.mu vaco.delta vaco.cap flash_reinforce.delta gtpo_conflict.most"
        ).split()
    }
    assert _accepting(-math.inf) == {"clip_cov.cov_low", "nthr.beta"}


def test_a_published_method_of_the_users_own_is_held_to_the_ranges_of_its_options_and_parts() -> None:
    @Paper("An example", "0000.00000", "own")
    def mine(*, share: Share | None = 0.1, strength: float = 0.1) -> Objective:
        return dataclasses.replace(GRPO, penalties=(ReferenceKl(strength),))

    assert mine(share=None).name == "mine"
    with pytest.raises(OutOfRange, match=r"^mine: beta of ReferenceKl is -1, expected a finite number >= 0$"):
        mine(strength=-1)
    with pytest.raises(OutOfRange, match=r"^mine: share is 2, expected a number in \[0, 1\], or none$"):
        mine(share=2)
