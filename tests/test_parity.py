"""docs/parity.md lists every method, refused where the host refuses it; how its tool reads and rounds."""

from collections.abc import Callable

import parity as tool

import tokenpo
from tokenpo.base.errors import Unsupported, refuse
from tokenpo.hosts import verl
from tokenpo.hosts.trl import objective as trl
from tokenpo.methods import METHODS
from tokenpo.train.recipe.config import Config
from tokenpo.train.recipe.objective import require_here


def _sentence(ask: Callable[[], None]) -> list[str]:
    try:
        ask()
    except Unsupported as error:
        return [*error.args]
    return []


def test_the_page_has_every_method_and_refuses_what_the_engines_refuse() -> None:
    remedy = f"run `{tool.COMMAND}` with the engines' environment and commit docs/parity.md"
    rows = tool.written(tool.PAGE.read_text(encoding="utf-8"))
    assert list(rows) == list(METHODS), f"docs/parity.md has not the rows that the table of methods has: {remedy}"
    for name in METHODS:
        objective = tokenpo.method(name)
        here = _sentence(lambda o=objective: require_here(o, None if o.teacher_beta is None else Config()))
        sampled = _sentence(lambda o=objective: refuse(trl.lacking(o, reported=True)))
        cluster = _sentence(lambda o=objective: refuse(verl.lacking(o)))
        expected = {"embedded": here, "TRL": sampled}
        expected |= {"verl, 1 rank": cluster, "verl, 2 ranks": cluster}
        told = {column: cell == tool.REFUSED for column, cell in rows[name].items()}
        assert told == {column: bool(sentence) for column, sentence in expected.items()}, f"{name}: {remedy}"


def test_the_page_promises_nothing_but_rounding() -> None:
    rows = tool.written(tool.PAGE.read_text(encoding="utf-8"))
    for name, row in rows.items():
        for column, (_, floor) in tool.COLUMNS.items():
            if row[column] != tool.REFUSED:
                assert all(floor <= float(x) * 1.01 <= 11 * floor for x in row[column].split(", ")), (name, column)
