"""Messages on the mistakes in a recipe: the file or flag, the setting, and what to write instead."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from ...base.errors import TokenPOError, nearest

Flags = Mapping[tuple[str, ...], str]  # path of a setting -> the flag that set it
Fields = Callable[[tuple[str, ...]], Mapping[str, Any]]
_MOST = 5  # mistakes in one message: a file that is no recipe at all would fill the screen
_FREE = ("options", "method")  # tables with the options of a task or a method


def explain(problems: Sequence[ErrorDetails], where: str, flags: Flags, fields_of: Fields) -> str:
    """The problems in one sentence; `where` is the file, `fields_of` returns the settings of a section."""
    # A value that fits none of several types is one mistake, although pydantic reports several problems.
    found = {_place(problem, fields_of): problem for problem in reversed(problems)}
    sentences = []
    for path, x in list(reversed(found.items()))[:_MOST]:
        setter = _setter(path[:-1] if _lacks_key(x) else path, where, flags)  # nothing sets a missing key
        sentences.append(_explain(x, path, setter, fields_of))
    more = f"; and {len(found) - _MOST} more mistakes" if len(found) > _MOST else ""
    return "; ".join(sentences) + more


def refuse_dates(value: Any, path: tuple[str, ...], where: str, flags: Flags) -> None:
    """Raises TokenPOError on TOML's dates, which config.json cannot hold."""
    if isinstance(value, (datetime.date, datetime.time)):
        raise TokenPOError(f"{_setter(path, where, flags)}: {'.'.join(path)} = {value} is a date: put it in quotes")
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        refuse_dates(item, (*path, str(key)), where, flags)


def _place(problem: ErrorDetails, fields_of: Fields) -> tuple[str, ...]:
    """The path of the setting, without pydantic's labels for the members of a union."""
    path = tuple(map(str, problem["loc"]))
    return next((path[:n] for n in range(1, len(path)) if not fields_of(path[:n]) and path[n - 1] not in _FREE), path)


def _lacks_key(problem: ErrorDetails) -> bool:
    """Whether a section lacks a key; a list may lack a value."""
    return problem["type"] == "missing" and isinstance(problem["loc"][-1], str)


def _setter(path: tuple[str, ...], where: str, flags: Flags) -> str:
    """The flag that set this setting, a section around it or something in it; else the file."""
    around = next((flags[path[:n]] for n in range(len(path), 0, -1) if path[:n] in flags), None)
    inside = next((flag for setting, flag in flags.items() if setting[: len(path)] == path), None)
    return around or inside or where


def _explain(problem: ErrorDetails, path: tuple[str, ...], where: str, fields_of: Fields) -> str:
    *sections, key = path
    place = f"section [{'.'.join(sections)}]" if sections else "the top level"
    if problem["type"] == "extra_forbidden":
        return f"{where}: {place} has no key {key!r}: {_meant(key, tuple(sections), fields_of)}"
    whole = ".".join(path)
    if _lacks_key(problem):
        return f"{where}: {place} lacks the key {key!r}: write it there, or --set {whole}=VALUE"
    mistake = problem["msg"].lower().removeprefix("value error, ")
    if problem["type"] == "missing":
        mistake = "it has too few values"
    if problem["type"] in ("model_type", "dict_type"):
        keys = ", ".join(fields_of(path))
        mistake = f"it is a section: write [{whole}] and its settings below, or --set {whole}.KEY=VALUE"
        mistake += f", where KEY is one of {keys}" if keys else ""
    return f"{where}: {whole} = {problem['input']!r:.80}: {mistake}"


def _meant(key: str, section: tuple[str, ...], fields_of: Fields) -> str:
    """A hint for an unknown key: where the key or its initials exist (learning_rate: lr), or the nearest key."""
    sections: list[tuple[str, ...]] = [()]
    for path in sections:  # the list grows by inner sections
        sections += [(*path, name) for name in fields_of(path)]
    names = [key, "".join(word[:1] for word in key.split("_"))]
    places = [section] if names[1] in fields_of(section) else sections
    elsewhere = [".".join((*path, name)) for name in names for path in places if name in fields_of(path)]
    return f"did you mean {' or '.join(elsewhere)}?" if elsewhere else nearest(key, fields_of(section))
