"""What `--set section.key=value` says."""

from __future__ import annotations

import tomllib
from typing import Any

from ..errors import TokenPOError


def apply(raw: dict[str, Any], override: str) -> tuple[str, ...]:
    """Sets what `--set` says; the path of the setting.

    Raises:
        TokenPOError: no "=", or a setting where a section should be.
    """
    key, equals, text = override.partition("=")
    *sections, last = key.strip().split(".")
    if not equals or not last:
        raise TokenPOError(f"--set {override}: write section.key=value, e.g. train.lr=3e-4")
    table = raw
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise TokenPOError(f"--set {override}: {section} is a setting, not a section")
    table[last] = toml_value(text)
    return (*sections, last)


def toml_value(text: str) -> Any:
    """What the user typed behind "=": a value of TOML, else plain text."""
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text.strip()
    return read["value"] if len(read) == 1 else text.strip()
