"""The options of a builder, as its annotations declare them."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from ..base.errors import TokenPOError, UnknownName, choose, nearest
from ..core.ranges import NUMBER, Range, is_number, members, range_of, require


@dataclass(frozen=True)
class Option:
    """A keyword of a builder.

    Attributes:
        default: its default value.
        kinds: names of its types; `float | None` has two.
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
        """Reads the annotation; if it could not be evaluated it is text, and gives the kinds only."""
        hint = parameter.annotation
        if isinstance(hint, str):
            return cls(parameter.default, tuple(hint.split(" | ")))
        types = [kind for kind, _ in members(hint)]
        choices = tuple(text for kind in types if _is_choice(kind) for text in get_args(kind))
        notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        words = [note for note in notes if isinstance(note, str)]
        return cls(parameter.default, tuple(map(_name, types)), choices, range_of(hint), "".join(words[-1:]))

    @property
    def line(self) -> str:
        """Its meaning, with its range, or with its choices where the words do not name them."""
        if self.allowed:
            return f"{self.words} ({self.allowed.text})"
        quoted = [f'"{text}"' for text in self.choices]
        return self.words if all(text in self.words for text in quoted) else f"{self.words} ({', '.join(quoted)})"

    def check(self, owner: str, name: str, value: object, kind: str = "method ") -> None:
        """Refuses a value of another kind, another choice or outside the range; `kind` stands before the owner."""
        kinds = [_KINDS[kind] for kind in self.kinds if kind in _KINDS]
        if len(kinds) == len(self.kinds) and not any(kind.holds(value) for kind in kinds):
            expected = " or ".join(kind.text for kind in kinds)
            raise TokenPOError(f"{kind}{owner}: option {name} = {value!r:.80} must be {expected}")
        if self.choices and isinstance(value, str):
            choose(f"{owner}: {name}", value, dict.fromkeys(self.choices))
        if self.allowed:
            require(owner, name, value, self.allowed)


def options_of(build: Callable[..., object]) -> dict[str, Option]:
    """The keywords of a builder, without `*args` and `**options`."""
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {name: Option.of(x) for name, x in _parameters(build).items() if x.kind not in starred}


def check_options(owner: str, given: Mapping[str, object], build: Callable[..., object], kind: str = "method ") -> None:
    """Refuses a keyword that a builder does not have, and a value that its annotation does not allow.

    Args:
        owner: the method, or the table of the options.
        kind: stands before the owner in messages.

    Raises:
        UnknownName: naming the method and the nearest keyword, or the option and the nearest choice.
        TokenPOError: naming the method, the option, its value and the kind it must have.
        OutOfRange: naming the method, the option, its value and the range.
    """
    known = options_of(build)
    takes_all = any(x.kind is x.VAR_KEYWORD for x in _parameters(build).values())
    for option, value in given.items():
        if option in known:
            known[option].check(owner, option, value, kind)
        elif not takes_all:
            raise UnknownName(f"{kind}{owner} has no option {option!r}; {nearest(option, known)}")


def documented(build: Callable[..., object], about: str = "") -> str | None:
    """The docstring of a builder, `about` and an Args section for the options whose annotations carry words."""
    lines = [f"    {name}: {option.line}." for name, option in options_of(build).items() if option.words]
    pieces = [inspect.cleandoc(build.__doc__ or ""), *([inspect.cleandoc(about)] if about else [])]
    return "\n".join(["\n\n".join(pieces), "", "Args:", *lines, ""]) if lines else "\n\n".join(pieces)


def _parameters(build: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    """The parameters; annotations are evaluated if Python finds every name in them, else they stay text."""
    try:
        return inspect.signature(build, eval_str=True).parameters
    except Exception:  # evaluating a user's annotation may raise any exception
        return inspect.signature(build).parameters


def _is_choice(kind: object) -> bool:
    return get_origin(kind) is Literal and all(isinstance(text, str) for text in get_args(kind))


def _name(kind: object) -> str:
    """ "float" for float, "str" for a `Literal` of texts, "None" for its type; else as Python writes the type."""
    if _is_choice(kind):
        return "str"
    name = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return "None" if name == "NoneType" else name


# Kind -> its name in messages and the test of its values. The builder checks other kinds itself.
_KINDS = {
    "float": NUMBER,
    "int": Range("a whole number", lambda value: is_number(value) and isinstance(value, numbers.Integral)),
    "bool": Range("true or false", lambda value: isinstance(value, bool)),
    "str": Range("text", lambda value: isinstance(value, str)),
    "tuple[float, float]": Range(
        "two numbers", lambda x: isinstance(x, (tuple, list)) and len(x) == 2 and all(map(is_number, x))
    ),
    "None": Range("none", lambda value: value is None),
}
