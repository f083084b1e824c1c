"""The checks of one recorded response: each mistake is one sentence that names place, field and remedy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ...base.errors import MissingInput, TokenPOError, nearest
from .response import PER_TOKEN, Response

REQUIRED = {
    "group": "the same number or text for all responses to one prompt",
    "reward": "the number that the response earned",
    "tokens": "one string for each response token, or token_ids",
    "old_logprob": "the log-probability, in nats, of each token under the policy that the update starts from",
}
KNOWN = frozenset({*REQUIRED, "token_ids", "prompt", "correct", "step", "prompt_logprob", *PER_TOKEN})


def parse(where: str, line: Mapping[str, Any]) -> Response:
    """A checked response. null stands for an optional field that is not there.

    Args:
        where: file and line, or file and row, for the messages.

    Raises:
        MissingInput: a required field is not there.
        TokenPOError: a value of the wrong kind or length, or a number that is not finite.
    """
    line = {name: value for name, value in line.items() if value is not None}
    for name, meaning in REQUIRED.items():
        if name not in line and not (name == "tokens" and "token_ids" in line):
            fields = (
                f"fields: {', '.join(map(plain, line))}; {nearest(name, map(plain, line))}" if line else "it has none"
            )
            raise MissingInput(f"{where}: no field {name!r} ({fields}): give {meaning}")
    ids = _token_ids(where, line)
    tokens = _tokens(where, line, ids)
    return Response(
        group=_field(where, line, "group", (int, str), "a whole number or text"),
        reward=_number(where, "reward", line["reward"]),
        tokens=tokens,
        numbers={name: _per_token(where, name, line[name], len(tokens)) for name in PER_TOKEN if name in line},
        token_ids=ids,
        prompt=_field(where, line, "prompt", (str,), "text; write chat messages out", ""),
        correct=_field(where, line, "correct", (bool,), "true, false or null"),
        step=_field(where, line, "step", (int,), "a whole number"),
        prompt_logprob=_number(where, "prompt_logprob", line["prompt_logprob"]) if "prompt_logprob" in line else None,
    )


def plain(name: str) -> str:
    """A field's name as a message may show it: short, and nothing in it that a terminal would obey."""
    return (name if name.isprintable() else repr(name))[:40]


def _token_ids(where: str, line: Mapping[str, Any]) -> tuple[int, ...] | None:
    if "token_ids" not in line:
        return None
    return tuple(_list_of(where, "token_ids", line["token_ids"], lambda x: type(x) is int and 0 <= x < 2**63, "ids"))


def _tokens(where: str, line: Mapping[str, Any], ids: tuple[int, ...] | None) -> tuple[str, ...]:
    if "tokens" not in line:
        return tuple(f"[{i}]" for i in ids or ())
    tokens = _list_of(where, "tokens", line["tokens"], lambda x: type(x) is str, "strings")
    if ids is not None and len(ids) != len(tokens):
        raise TokenPOError(f"{where}: 'token_ids' has {len(ids)} values for {len(tokens)} tokens: give one for each")
    return tuple(tokens)


def _per_token(where: str, name: str, values: Any, count: int) -> tuple[float, ...]:
    """One finite number for each token; a temperature may be one number for all of them."""
    if name == "temperature" and type(values) in (int, float):
        values = [values] * count
    numbers = _list_of(where, name, values, lambda x: type(x) in (int, float), "numbers")
    if len(numbers) != count:
        raise TokenPOError(
            f"{where}: {name!r} has {len(numbers)} numbers for {count} tokens: give one for each response token and "
            "none for prompt and padding"
        )
    checked = tuple(_number(where, f"{name}[{place}]", x) for place, x in enumerate(numbers))
    if name == "temperature" and min(checked, default=1.0) <= 0:
        raise TokenPOError(f"{where}: 'temperature' holds {min(checked):g}: give the one that sampled the token, > 0")
    return checked


def _list_of(where: str, name: str, values: Any, fits: Callable[[Any], bool], kind: str) -> list[Any]:
    if not isinstance(values, list):
        raise TokenPOError(f"{where}: {name!r} is {_kind(values)}: give a list of {kind}")
    for place, x in enumerate(values):
        if not fits(x):
            raise TokenPOError(f"{where}: '{name}[{place}]' is {_kind(x)}: give a list of {kind}")
    return values


def _number(where: str, name: str, value: Any) -> float:
    if type(value) not in (int, float):
        raise TokenPOError(f"{where}: {name!r} is {_kind(value)}: give a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise TokenPOError(f"{where}: {name!r} is {number}: give a finite number, and mend what made this one")
    return number


def _field(
    where: str, line: Mapping[str, Any], name: str, kinds: tuple[type, ...], remedy: str, default: Any = None
) -> Any:
    if name not in line:
        return default
    # By type and not by isinstance: true is no group, and 1 says nothing about right or wrong.
    if type(line[name]) not in kinds:
        raise TokenPOError(f"{where}: {name!r} is {_kind(line[name])}: give {remedy}")
    return line[name]


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}
    return names.get(type(value), f"{value!r:.40}")
