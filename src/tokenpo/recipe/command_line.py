"""What flags of the command line say of a recipe: `--set section.key=value`, and those with a name of their own."""

from __future__ import annotations

import tomllib
from typing import Any

from ..base.errors import TokenPOError


def apply(raw: dict[str, Any], override: str) -> tuple[str, ...]:
    """Sets what `--set` says; the path of the setting.

    Raises:
        TokenPOError: no "=", or a setting where a section should be.
    """
    key, equals, text = override.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not path[-1]:
        raise TokenPOError(f"--set {override}: write section.key=value, e.g. train.lr=3e-4")
    return put(raw, path, toml_value(text), f"--set {override}")


def put(raw: dict[str, Any], path: tuple[str, ...], value: Any, flag: str) -> tuple[str, ...]:
    """Sets the setting of a path to a value, as `flag` says; the path.

    Raises:
        TokenPOError: a setting where a section should be.
    """
    *sections, last = path
    table = raw
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise TokenPOError(f"{flag}: {section} is a setting, not a section")
    table[last] = value
    return path


def toml_value(text: str) -> Any:
    """What the user typed behind "=": a value of TOML, else plain text."""
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text.strip()
    return read["value"] if len(read) == 1 else text.strip()
