"""Parts hold parts of the kinds that they declare: the annotations of a dataclass, which Python itself never reads."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any

from ...base.errors import TokenPOError
from ...base.user_code import told
from .part import Part, walk

_FLAGS = ("idle_on_policy", "assumes_on_policy", "corrects_rollout", "entropy_gradient", "follows_advantage", "draws")
_SAYS = {"needs": (frozenset, "a frozenset of names")} | dict.fromkeys(_FLAGS, (bool, "True or False"))


def check_kinds(whole: Any, owner: str) -> None:
    """Every part inside a value, in the words of its owner.

    Raises:
        TokenPOError: a field that is declared to hold a part holds something else, such as 0.2 for `FixedBounds`; a
            part that is no frozen value; what it says of itself and is no answer.
    """
    for part in walk(whole):
        _check_value(part, owner)
        _check_words(part, owner)
        for field, kinds in _declared(type(part)).items():
            if not isinstance(value := getattr(part, field), kinds):
                names = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
                raise TokenPOError(
                    f"{owner}: {field} of {type(part).__name__} holds {value!r}, expected a value of type {names}"
                )


def _check_value(part: Part, owner: str) -> None:
    """Signals are kept by the parts that made them, objectives compared and sent to workers, and `walk` finds what
    stands in fields: all take frozen dataclasses."""
    kind = type(part).__name__
    if _hides(part):
        raise TokenPOError(
            f"{owner}: {kind} is no frozen dataclass that compares by its fields alone: put "
            "@dataclasses.dataclass(frozen=True), without eq=False, above its class, and what it holds into fields"
        )
    try:
        hash(part)
    except TypeError as error:
        raise TokenPOError(
            f"{owner}: {kind} is no value ({error}): let its fields hold numbers, text, tuples and parts"
        ) from error


def _hides(part: Part) -> bool:
    """It is no frozen dataclass, or more than one: a subclass that keeps what no field has, and no equality sees."""
    parameters = getattr(part, "__dataclass_params__", None)
    if parameters is None or not (parameters.frozen and parameters.eq):
        return True
    fields = {field.name for field in dataclasses.fields(part)}  # pyright: ignore[reportArgumentType]
    held = vars(part) if hasattr(part, "__dict__") else ()
    return any(
        not isinstance(getattr(type(part), name, None), functools.cached_property) for name in set(held) - fields
    )


def _check_words(part: Part, owner: str) -> None:
    """What it says of itself, which engines rely on: a method in place of a property would always be true."""
    kind = type(part).__name__
    for name, (wanted, words) in _SAYS.items():
        if not hasattr(type(part), name):
            continue
        try:
            said = getattr(part, name)
        except TokenPOError:
            raise
        except Exception as error:
            raise TokenPOError(f"{owner}: {name} of {kind} raised {told(error)}") from error
        if not isinstance(said, wanted):
            raise TokenPOError(
                f"{owner}: {name} of {kind} is a {type(said).__name__}: let it be a property that returns {words}"
            )


@functools.cache
def _declared(kind: type[Part]) -> Mapping[str, tuple[type, ...]]:
    """The fields that hold a part, by name, with all the types that they may hold."""
    if not dataclasses.is_dataclass(kind):
        return {}
    try:
        hints = typing.get_type_hints(kind)
    except (NameError, AttributeError):  # a name that only type checkers know, or of a function's own scope
        return {}
    found = {}
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        kinds = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)
        if all(isinstance(one, type) for one in kinds) and any(issubclass(one, Part) for one in kinds):
            # A whole number is a float too, as it is to type checkers.
            found[field.name] = (*kinds, int) if float in kinds else kinds
    return found
