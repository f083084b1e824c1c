"""The tables of docs/trl.md and docs/verl.md that say what becomes of a host's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from layout import cell, code, table

from tokenpo.engines.trl import fields as trl
from tokenpo.engines.verl import fields as verl


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


TABLES: dict[str, dict[str, Callable[[], str]]] = {
    "trl": {"losses": trl_losses, "fields": trl_fields},
    "verl": {"fields": verl_fields},
}
