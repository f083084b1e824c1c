"""Options of the command line that change a recipe: `--set section.key=value`, and the method list of `--methods`."""

import re
import tomllib
from typing import Any, NamedTuple

from ...base.errors import TokenPOError

LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_.+ -]*[A-Za-z0-9_.+])?"
_METHOD = r"(?:[^:=@,]*[./][^:=@,]*:)?\w+"
# Outside of brackets and quotes.
_COMMA = re.compile(r""",(?![^\[{]*[\]}])(?=(?:[^"']|"[^"]*"|'[^']*')*$)""")
SYNTAX = (
    "write METHOD, METHOD:KEY=VALUE,KEY=VALUE or LABEL@METHOD:KEY=VALUE, separated by commas; a METHOD of your own is "
    "FILE.py:FUNCTION"
)


def apply(raw: dict[str, Any], override: str) -> None:
    """Applies "section.key=value" to `raw`."""
    key, equals, text = override.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not path[-1]:
        raise TokenPOError(f"--set {override}: write section.key=value, e.g. train.lr=3e-4")
    put(raw, path, toml_value(text), f"--set {override}")


def put(raw: dict[str, Any], path: tuple[str, ...], value: Any, flag: str) -> None:
    """Sets the setting at a path; TokenPOError, naming `flag`, if a section is a setting."""
    *sections, last = path
    table = raw
    for section in sections:
        if table.get(section) in (None, "none"):  # a written config names its absent sections
            table[section] = {}
        table = table[section]
        if not isinstance(table, dict):
            raise TokenPOError(f"{flag}: {section} is a setting, not a section")
    table[last] = value


def toml_value(text: str) -> Any:
    """The text after "=" as a TOML value, or as plain text if it is none."""
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text.strip()
    return read["value"] if len(read) == 1 else text.strip()


class Entry(NamedTuple):
    """One method of the list, with its options as (key, value in TOML)."""

    label: str
    method: str
    options: tuple[tuple[str, str], ...]


def parse_entries(text: str, where: str = "--methods") -> list[Entry]:
    """The entries of a list in order; raises TokenPOError for another form, or a label twice.

    >>> [entry.label for entry in parse_entries("tepo,hapo:tau=0,beta=0,plain@hapo:tau=0")]
    ['tepo', 'hapo:tau=0,beta=0', 'plain']
    """
    found: list[tuple[str, str, list[tuple[str, str]]]] = []
    for piece in _COMMA.split(text):
        option = re.fullmatch(r"\s*(\w+)\s*=\s*(.*\S)\s*", piece, re.DOTALL)
        if option and found:
            found[-1][2].append((option[1], option[2]))
            continue
        head = re.fullmatch(rf"\s*(?:({LABEL})\s*@\s*)?({_METHOD})\s*(?::\s*(\w+)\s*=\s*(.*\S)\s*)?", piece, re.DOTALL)
        if head is None:
            raise TokenPOError(f"{where} {text!r}: {piece.strip()!r} is not a method: {SYNTAX}")
        found.append((head[1] or "", head[2], [(head[3], head[4])] if head[3] else []))
    entries = []
    for label, method, options in found:
        written = ",".join(f"{key}={value}" for key, value in options)
        if len(dict(options)) < len(options):
            raise TokenPOError(f"{where} {method}:{written} gives an option twice: leave one out")
        name = short(method)
        entries.append(Entry(label or (f"{name}:{written}" if written else name), method, tuple(options)))
    labels = [entry.label for entry in entries]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise TokenPOError(f"{where} names {twice} twice: leave one out, or tell them apart: {SYNTAX}")
    return entries


def short(method: str) -> str:
    """The name of a method without the file or module of a user's function.

    >>> short("mine/late.py:late")
    'late'
    """
    return method.rpartition(":")[2]
