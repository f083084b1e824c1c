"""Where a method comes from, and what makes a builder a published method."""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, ParamSpec, get_args

from ..base.errors import OutOfRange, TokenPOError, UnknownName, nearest
from ..core.objective import Objective
from ..core.ranges import is_number, members, range_of, require

P = ParamSpec("P")


@dataclass(frozen=True)
class Paper:
    """The source of a method.

    Args:
        title: short title.
        arxiv: identifier.
        version: the version the formulas belong to, "" where one text serves all.
        provenance: "paper" read in its text, "code" read in the authors' or a framework's code, "second-hand" told by
            others, "reconstructed" inferred by us because the body could not be read, "own" a composition of ours, for
            which title and identifier name where its idea stands.
        note: what the provenance leaves open.
        later: (version, identifier) of a version that appeared under an identifier of its own.
        code: what was read, of provenance "code": OWNER/REPOSITORY@COMMIT:FILE, or PACKAGE VERSION:FILE for a published
            package; several are divided by "; ".
    """

    title: str
    arxiv: str
    version: str
    provenance: Literal["paper", "code", "second-hand", "reconstructed", "second-hand + reconstructed", "own"]
    note: str = ""
    later: tuple[str, str] | None = None
    code: str = ""

    @property
    def reference(self) -> str:
        later = "; {} is {}".format(*self.later) if self.later else ""
        return f"arXiv:{self.arxiv}{' ' + self.version if self.version else ''}{later}"


def published(paper: Paper) -> Callable[[Callable[P, Objective]], Callable[P, Objective]]:
    """Marks a builder as a method of `paper`; its keywords are checked, and a wrong one names the nearest.

    An option is held to the kind and the range that it is annotated with. What a part of it refuses all the same, such
    as two numbers that do not go together, is told with the name of the method.
    """

    def mark(build: Callable[P, Objective]) -> Callable[P, Objective]:
        @functools.wraps(build)
        def checked(*args: P.args, **options: P.kwargs) -> Objective:
            check_options(build.__name__, options, options_of(build))
            try:
                return build(*args, **options)
            except OutOfRange as error:
                if error.owner == build.__name__:
                    raise
                name = f"{error.name} of {error.owner}"
                raise OutOfRange(build.__name__, name, error.value, error.expected) from error

        checked.paper = paper  # type: ignore[attr-defined]
        return checked

    return mark


def options_of(build: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    """The keywords of a builder, their annotations evaluated where Python finds every name in them."""
    try:
        return inspect.signature(build, eval_str=True).parameters
    except Exception:  # whatever evaluating an annotation of the user's raises
        return inspect.signature(build).parameters


def check_options(name: str, options: Mapping[str, object], known: Mapping[str, inspect.Parameter]) -> None:
    """Refuses a keyword that a builder does not have, and a value of another kind or range than its annotation says.

    What a builder takes as `**options` is left to it.

    Raises:
        UnknownName: naming the method and the nearest keyword.
        TokenPOError: naming the method, the option, its value and the kind it must have.
        OutOfRange: naming the method, the option, its value and the range.
    """
    named = {option: x for option, x in known.items() if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)}
    takes_all = any(x.kind is x.VAR_KEYWORD for x in known.values())
    for option, value in options.items():
        if option not in named and takes_all:
            continue
        if option not in named:
            raise UnknownName(f"method {name} has no option {option!r}; {nearest(option, named)}")
        kinds = kinds_of(named[option])
        if all(kind in _KINDS for kind in kinds) and not any(_KINDS[kind][0](value) for kind in kinds):
            wanted = " or ".join(_KINDS[kind][1] for kind in kinds)
            raise TokenPOError(f"method {name}: option {option} = {value!r:.80} must be {wanted}")
        if allowed := range_of(named[option].annotation):
            require(name, option, value, allowed)


def kinds_of(parameter: inspect.Parameter) -> list[str]:
    """The kinds that an annotation names, as text or as types: `float | None` and `Optional[float]` name two."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        return annotation.split(" | ")
    kinds = (kind for kind, _ in members(annotation))
    plain = (kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind) for kind in kinds)
    return ["None" if name == "NoneType" else name for name in plain]


def _is_pair(value: object) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(map(is_number, value))


# The check of each kind that builders annotate, and its name in messages; other kinds are left to the builder.
_KINDS: dict[str, tuple[Callable[[object], bool], str]] = {
    "float": (is_number, "a number"),
    "int": (lambda value: is_number(value) and isinstance(value, numbers.Integral), "a whole number"),
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "str": (lambda value: isinstance(value, str), "text"),
    "tuple[float, float]": (_is_pair, "two numbers"),
    "None": (lambda value: value is None, "none"),
}
