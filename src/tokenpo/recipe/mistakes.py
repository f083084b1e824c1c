"""What is wrong with a recipe, in words: who said it (the file or a flag), where, and what to write instead."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import ErrorDetails

from ..base.errors import TokenPOError, nearest

Told = Mapping[tuple[str, ...], str]  # path of a setting -> the flag that set it
Fields = Callable[[tuple[str, ...]], Mapping[str, Any]]
_DEEPEST = 32  # sections, tables and lists inside each other
_MOST = 5  # mistakes that one sentence tells: a file that is no recipe at all would fill the screen
_FREE = ("options", "method")  # tables that hold what a task or a method takes


def explain(problems: Sequence[ErrorDetails], where: str, told: Told, fields_of: Fields) -> str:
    """The problems in one sentence; `where` is the file, `fields_of` gives the settings of a section."""
    # A value that fits none of several kinds is one mistake, although it comes as several problems.
    found = {_place(problem, fields_of): problem for problem in reversed(problems)}
    said = [_explain(x, path, _said_by(x, path, where, told), fields_of) for path, x in reversed(found.items())]
    more = f"; and {len(said) - _MOST} more mistakes" if len(said) > _MOST else ""
    return "; ".join(said[:_MOST]) + more


def refuse_unwritable(value: Any, path: tuple[str, ...], where: str, told: Told) -> None:
    """Refuses dates, which no setting is and config.json could not hold, half a character, which no file can, and
    tables in tables without end.

    Raises:
        TokenPOError: naming the setting.
    """
    if len(path) > _DEEPEST:
        raise TokenPOError(
            f"{_teller(path, where, told)}: {'.'.join(path):.60}... is nested more than {_DEEPEST} deep: no setting is"
        )
    if isinstance(value, (datetime.date, datetime.time)):
        raise TokenPOError(f"{_teller(path, where, told)}: {'.'.join(path)} = {value} is a date: put it in quotes")
    half = next((x for x in (*path, value) if isinstance(x, str) and not _is_unicode(x)), None)
    if half is not None:
        raise TokenPOError(
            f"{_teller(path, where, told)}: {half!r:.80} holds half a character (\\ud800 to \\udfff): mend it"
        )
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        refuse_unwritable(item, (*path, str(key)), where, told)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _place(problem: ErrorDetails, fields_of: Fields) -> tuple[str, ...]:
    """The path of the setting, without what pydantic adds to tell the kinds of a union apart."""
    path = tuple(map(str, problem["loc"]))
    return next((path[:n] for n in range(1, len(path)) if not fields_of(path[:n]) and path[n - 1] not in _FREE), path)


def _teller(path: tuple[str, ...], where: str, told: Told) -> str:
    """Who set the setting of this path: the flag that set it, a section around it or something in it, else the file."""
    around = next((told[path[:n]] for n in range(len(path), 0, -1) if path[:n] in told), None)
    inside = next((flag for setting, flag in told.items() if setting[: len(path)] == path), None)
    return around or inside or where


def _said_by(problem: ErrorDetails, path: tuple[str, ...], where: str, told: Told) -> str:
    """Who made the mistake: a key that is missing was set by nobody, its section was."""
    return _teller(path[:-1] if problem["type"] == "missing" else path, where, told)


def _explain(problem: ErrorDetails, path: tuple[str, ...], where: str, fields_of: Fields) -> str:
    *sections, key = path
    place = f"section [{'.'.join(sections)}]" if sections else "the top level"
    if problem["type"] == "extra_forbidden":
        return f"{where}: {place} has no key {key!r}: {_meant(key, tuple(sections), fields_of)}"
    whole = ".".join(path)
    if problem["type"] == "missing":
        return f"{where}: {place} lacks the key {key!r}: write it there, or --set {whole}=VALUE"
    said = problem["msg"].lower().removeprefix("value error, ")
    if problem["type"] in ("model_type", "dict_type"):
        keys = ", ".join(fields_of(path))
        said = f"it is a section: write [{whole}] and its settings below, or --set {whole}.KEY=VALUE"
        said += f", where KEY is one of {keys}" if keys else ""
    return f"{where}: {whole} = {problem['input']!r:.80}: {said}"


def _meant(key: str, section: tuple[str, ...], fields_of: Fields) -> str:
    """What to write in the place of an unknown key: it stands in another section, or is like one of this."""
    sections: list[tuple[str, ...]] = [()]
    for path in sections:  # it grows by the sections inside
        sections += [(*path, name) for name in fields_of(path)]
    elsewhere = [".".join((*path, key)) for path in sections if key in fields_of(path)]
    return f"did you mean {' or '.join(elsewhere)}?" if elsewhere else nearest(key, fields_of(section))
