"""The tables of docs/trl.md and docs/verl.md that say what becomes of a host's settings, and docs/engines.md's of what
runs where."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from layout import cell, code, table

from tokenpo.base.errors import Unsupported
from tokenpo.engines import launch
from tokenpo.engines.trl import fields as trl
from tokenpo.engines.verl import fields as verl
from tokenpo.methods import METHODS
from tokenpo.recipe.config import parse_config


def with_tables(page: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """The page with each of its generated tables re-made."""
    for name, made in tables.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, opened, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not (opened and closed):
            raise SystemExit(f"a page of docs/ lacks {begin} ... {end}, between which that table belongs")
        page = f"{before}{begin}\n{made()}\n{end}{after}"
    return page


def names(found: tuple[str, ...]) -> str:
    return ", ".join(code(name) for name in found)


def trl_fields() -> str:
    """One row for each field that reaches the loss, one for each group of the others."""
    rows = [
        *((code(name), "refused", cell(f"{remedy[0].upper()}{remedy[1:]}")) for name, remedy in trl.REFUSED.items()),
        *((code(name), "honoured", cell(meaning)) for name, meaning in trl.HONOURED.items()),
        *((names(group), "TRL's own", f"{label}{': ' if note else ''}{note}") for label, note, group in trl.THEIRS),
    ]
    return table(("field", "", "what becomes of it"), rows)


def trl_losses() -> str:
    """TRL's settings of a loss, and ours."""
    rows = []
    for row in trl.TRANSLATED:
        theirs = ", ".join(code(f"{name}={value!r}") for name, value in row.theirs.items()) or "its defaults"
        options = f", method_options={written(row.options)}" if row.options else ""
        rows.append((theirs, code(f"method={row.method!r}{options}"), cell(row.apart) or "the same numbers"))
    return table(("TRL", "`TokenPOConfig`", ""), rows)


def written(options: Mapping[str, Any]) -> str:
    """A dict as it is written in Python."""
    return repr(dict(options)).replace("'", '"')


def verl_fields() -> str:
    """One row for each key that our loss replaces or the adapter reads, one for each group of the others."""
    rows = [
        *((code(key), "refused", cell(f"{remedy[0].upper()}{remedy[1:]}")) for key, _, remedy in verl.REFUSED),
        *((code(key), "honoured", cell(meaning)) for key, meaning in verl.HONOURED.items()),
        *((names(group), "verl's own", label) for label, group in verl.THEIRS),
    ]
    return table(("key", "", "what becomes of it"), rows)


ENGINES = {"embedded": "embedded", "trl": "TRL", "verl": "verl", "tinker": "Tinker"}


def runs_where() -> str:
    """One row for each method: each engine is asked, with a recipe that it takes otherwise."""
    rows = [(f"[`{name}`](methods/{name}.md)", *(answer(name, engine) for engine in ENGINES)) for name in METHODS]
    return table(("method", *ENGINES.values()), rows)


def answer(method: str, engine: str) -> str:
    """Whether an engine takes a method, and otherwise why not."""
    raw = {"model": {"path": "owner/model", "lora": {"rank": 8}}, "method": {"name": method}}
    try:
        launch.accepted(parse_config(raw, "recipe.toml"), engine)
    except Unsupported as error:
        lacking = re.search(r"(?:needs|reads the) (\w+)|adapts the (temperature)", str(error))
        assert lacking, error
        return f"no {(lacking[1] and code(lacking[1])) or lacking[2]}"
    return "runs"


TABLES: dict[str, dict[str, Callable[[], str]]] = {
    "trl": {"losses": trl_losses, "fields": trl_fields},
    "verl": {"fields": verl_fields},
    "engines": {"methods": runs_where},
}
