"""The recipes of the package, and a config written as a recipe."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...base.errors import UnknownName, nearest
from ...base.files import expanded
from .config import Config, fields_of

RECIPES = Path(__file__).parent / "recipes"


def shipped_recipes() -> dict[str, Path]:
    """The recipes of the package by name."""
    return {file.stem: file for file in sorted(RECIPES.glob("*.toml"))}


def find_recipe(name: str) -> Path:
    """The path of a recipe, given by path or by its name in the package; raises UnknownName if there is none."""
    path = expanded(name)
    if path.is_file():
        return path
    shipped = shipped_recipes()
    if name in shipped:
        return shipped[name]
    raise UnknownName(f"recipe {name} is not a file, and none of the package is called so: {nearest(name, shipped)}")


def to_toml(config: Config) -> str:
    """The whole config as a recipe, with meanings, and the keys of absent sections, as comments."""
    lines: list[str] = []
    _write_table(config.model_dump(), (), lines)
    return "\n".join(lines).strip() + "\n"


def _write_table(table: Mapping[str, Any], path: tuple[str, ...], lines: list[str]) -> None:
    fields = fields_of(path)
    absent = [key for key in fields if table[key] is None and fields_of((*path, key))]
    plain = {key: value for key, value in table.items() if not isinstance(value, dict) and key not in absent}
    if path and (plain or (not table and path != ("task", "options"))):
        lines.append(f"\n[{'.'.join(map(_toml_key, path))}]")
    for key, value in plain.items():
        lines.append(_noted(f"{_toml_key(key)} = {_toml(value)}", fields[key].description if key in fields else None))
    for key in absent:
        lines += _absent((*path, key), fields[key].description)
    for key, value in table.items():
        if isinstance(value, dict):
            _write_table(value, (*path, key), lines)


def _absent(path: tuple[str, ...], meaning: str | None) -> list[str]:
    lines = ["", _noted(f"# [{'.'.join(path)}]", f"none; {meaning}" if meaning else "none")]
    for key, field in fields_of(path).items():
        value, given = ("...", "to be given: ") if field.is_required() else (_toml(field.default), "")
        lines.append(_noted(f"# {key} = {value}", field.description and given + field.description))
    return lines


def _noted(line: str, meaning: str | None) -> str:
    return f"{line:<32}# {meaning}" if meaning else line


def _toml_key(key: str) -> str:
    bare = key and all(c.isascii() and (c.isalnum() or c in "-_") for c in key)
    return key if bare else _text(key)


def _text(value: str) -> str:
    """The text as a JSON string, with DEL escaped and without surrogate pairs, as TOML requires."""
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
    return _text(value) if isinstance(value, str) else json.dumps(value, default=str)  # a date
