"""Parts hold parts of the kinds that they declare: the annotations of a dataclass, which Python itself never reads."""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any

from ..errors import TokenPOError
from .base import Part, walk


def check_kinds(whole: Any, owner: str) -> None:
    """Every part inside a value, in the words of its owner.

    Raises:
        TokenPOError: a field that is declared to hold a part holds something else, such as 0.2 for `FixedBounds`; a
            part that is no value; `needs` that name nothing.
    """
    for part in walk(whole):
        _check_value(part, owner)
        for field, kinds in _declared(type(part)).items():
            if not isinstance(value := getattr(part, field), kinds):
                names = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
                raise TokenPOError(
                    f"{owner}: {field} of {type(part).__name__} holds {value!r}, expected a value of type {names}"
                )


def _check_value(part: Part, owner: str) -> None:
    """Signals are kept by the parts that made them, and objectives compared: both take frozen values."""
    kind = type(part).__name__
    try:
        hash(part)
    except TypeError as error:
        raise TokenPOError(
            f"{owner}: {kind} is no value ({error}): make it a frozen dataclass of numbers, text, tuples and parts"
        ) from error
    if not isinstance(part.needs, frozenset):
        raise TokenPOError(
            f"{owner}: needs of {kind} is a {type(part.needs).__name__}: let it be a property that returns a frozenset "
            "of names"
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
