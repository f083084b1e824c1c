"""The options of a builder, as its annotations declare them."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from ..base.errors import TokenPOError, UnknownName, choose, nearest
from ..core.ranges import Range, is_number, members, range_of, require


@dataclass(frozen=True)
class Option:
    """A keyword of a builder.

    Attributes:
        default: its value when it is not given.
        kinds: names of the types it may have; `float | None` has two.
        choices: the texts that a `Literal` allows; empty where any text is allowed.
        allowed: the range of its numbers; None where the annotation names none.
        words: its meaning, "" where the annotation carries no text.
    """

    default: Any
    kinds: tuple[str, ...]
    choices: tuple[str, ...] = ()
    allowed: Range | None = None
    words: str = ""

    @classmethod
    def of(cls, parameter: inspect.Parameter) -> Option:
        """The annotation read; one that could not be evaluated is text, and names kinds alone."""
        hint = parameter.annotation
        if isinstance(hint, str):
            return cls(parameter.default, tuple(hint.split(" | ")))
        types = [kind for kind, _ in members(hint)]
        choices = tuple(text for kind in types if _is_choice(kind) for text in get_args(kind))
        words = [note for note in _notes(hint) if isinstance(note, str)]
        return cls(parameter.default, tuple(map(_name, types)), choices, range_of(hint), "".join(words[-1:]))

    @property
    def line(self) -> str:
        """Its meaning, with its range or choices where the words do not name them."""
        if self.allowed:
            return f"{self.words} ({self.allowed.text})"
        quoted = [f'"{text}"' for text in self.choices]
        return self.words if all(text in self.words for text in quoted) else f"{self.words} ({', '.join(quoted)})"

    def check(self, method: str, name: str, value: object) -> None:
        """Refuses a value of another kind, another choice or outside the range."""
        kinds = [_KINDS[kind] for kind in self.kinds if kind in _KINDS]
        if len(kinds) == len(self.kinds) and not any(holds(value) for holds, _ in kinds):
            wanted = " or ".join(text for _, text in kinds)
            raise TokenPOError(f"method {method}: option {name} = {value!r:.80} must be {wanted}")
        if self.choices and isinstance(value, str):
            choose(f"{method}: {name}", value, dict.fromkeys(self.choices))
        if self.allowed:
            require(method, name, value, self.allowed)


def options_of(build: Callable[..., object]) -> dict[str, Option]:
    """The keywords of a builder; what it takes as `**options` is none of them."""
    return {name: Option.of(x) for name, x in _parameters(build).items() if x.kind not in _STARRED}


def check_options(name: str, given: Mapping[str, object], build: Callable[..., object]) -> None:
    """Refuses a keyword that a builder does not have, and a value that its annotation does not allow.

    What a builder takes as `**options` is left to it.

    Raises:
        UnknownName: naming the method and the nearest keyword, or the option and the nearest choice.
        TokenPOError: naming the method, the option, its value and the kind it must have.
        OutOfRange: naming the method, the option, its value and the range.
    """
    known = options_of(build)
    takes_all = any(x.kind is x.VAR_KEYWORD for x in _parameters(build).values())
    for option, value in given.items():
        if option in known:
            known[option].check(name, option, value)
        elif not takes_all:
            raise UnknownName(f"method {name} has no option {option!r}; {nearest(option, known)}")


def documented(build: Callable[..., object]) -> str | None:
    """The docstring of a builder, with the options whose annotations carry words."""
    lines = [f"    {name}: {option.line}." for name, option in options_of(build).items() if option.words]
    return "\n".join([inspect.cleandoc(build.__doc__ or ""), "", "Args:", *lines, ""]) if lines else build.__doc__


def _parameters(build: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    """The parameters, their annotations evaluated where Python finds every name in them."""
    try:
        return inspect.signature(build, eval_str=True).parameters
    except Exception:  # whatever evaluating an annotation of the user's raises
        return inspect.signature(build).parameters


def _notes(hint: object) -> tuple[object, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _is_choice(kind: object) -> bool:
    return get_origin(kind) is Literal and all(isinstance(text, str) for text in get_args(kind))


def _name(kind: object) -> str:
    """ "float" for float, "str" for a `Literal` of texts, "None" for its type; else as Python writes the type."""
    if _is_choice(kind):
        return "str"
    name = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return "None" if name == "NoneType" else name


def _is_pair(value: object) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(map(is_number, value))


_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# The check of each kind that builders annotate, and its name in messages; other kinds are left to the builder.
_KINDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "float": (is_number, "a number"),
    "int": (lambda value: is_number(value) and isinstance(value, numbers.Integral), "a whole number"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "str": (lambda value: isinstance(value, str), "text"),
    "tuple[float, float]": (_is_pair, "two numbers"),
    "None": (lambda value: value is None, "none"),
}
