"""A config written out as a recipe: TOML that `tokenpo train` takes again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from .config import Config, fields_of


def to_toml(config: Config, *, explain: bool = False) -> str:
    """The whole config as a recipe that `tokenpo train` takes; `explain` adds what each setting means."""
    lines: list[str] = []
    _write_table(config.model_dump(), (), lines, explain)
    return "\n".join(lines).strip() + "\n"


def _write_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str], explain: bool) -> None:
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if path and (plain or (not table and path != ("task", "options"))):
        lines.append(f"\n[{'.'.join(map(_toml_key, path))}]")
    fields = fields_of(path) if explain else {}
    for key, value in plain.items():
        meaning = fields[key].description if key in fields else None
        line = f"{_toml_key(key)} = {_toml(value)}"
        lines.append(f"{line:<32}# {meaning}" if meaning else line)
    for key, value in table.items():
        if isinstance(value, dict):
            _write_table(value, (*path, key), lines, explain)


def _toml_key(key: str) -> str:
    bare = key and all(c.isascii() and (c.isalnum() or c in "-_") for c in key)
    return key if bare else _text(key)


def _text(value: str) -> str:
    """As JSON writes it, but for DEL, which TOML wants escaped, and for pairs of surrogates, which it does not know."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_key(key)} = {_toml(item)}" for key, item in value.items()) + "}"
    return _text(value) if isinstance(value, str) else json.dumps(value)
