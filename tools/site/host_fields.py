"""The tables of docs/trl*.md and docs/verl.md that say what becomes of a host's settings, and docs/engines.md's of what
runs where."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import host_settings
from layout import cell, code, method_link, table

from tokenpo.base.errors import Unsupported, refuse
from tokenpo.core.types import TAUGHT
from tokenpo.hosts import prime_rl, skyrl, verl
from tokenpo.hosts.tinker import responses as tinker
from tokenpo.hosts.trl import settings as trl
from tokenpo.hosts.trl.objective import lacking
from tokenpo.hosts.verl.settings import SETTINGS
from tokenpo.methods import METHODS
from tokenpo.train.recipe.config import Config, parse_config
from tokenpo.train.recipe.objective import accepted_here

REMEDY = "the error says what to set in its place"


def names(found: tuple[str, ...]) -> str:
    return ", ".join(code(name) for name in found)


def trl_fields() -> str:
    """One row for the fields that become the same."""
    return fields("field", (*(("rejected", name, "") for name in trl.REFUSED), *host_settings.TRL))


def fields(what: str, rows: Iterable[host_settings.Row]) -> str:
    """Keys of one fate and the same words share a row, and so do those that are rejected: the error has their words."""
    groups: dict[tuple[str, str], list[str]] = {}
    for fate, key, words in rows:
        groups.setdefault((fate, REMEDY if fate == "rejected" else words), []).append(key)
    told = [(names(tuple(keys)), fate, cell(words)) for (fate, words), keys in groups.items()]
    return table((what, "", "what becomes of it"), told)


def trl_losses() -> str:
    """TRL's settings of a loss, and ours."""
    rows = []
    for row in host_settings.TRANSLATED:
        theirs = ", ".join(code(f"{name}={value!r}") for name, value in row.theirs.items()) or "its defaults"
        options = f", method_options={written(row.options)}" if row.options else ""
        rows.append((theirs, code(f"method={row.method!r}{options}"), cell(row.apart) or "the same numbers"))
    return table(("TRL", "tokenpo", ""), rows)


def written(options: Mapping[str, Any]) -> str:
    """A dict as it is written in Python."""
    return repr(dict(options)).replace("'", '"')


def verl_fields() -> str:
    """One row for the keys that become the same."""
    ours = [(one.fate.replace("refused", "rejected"), one.key, one.words) for one in SETTINGS]
    return fields("key", (*ours, *host_settings.VERL))


def recipe(name: str) -> Config:
    """The method's recipe, with a teacher if it reads one."""
    teacher = {"teacher": {"path": "owner/teacher"}} if METHODS[name]().needs & TAUGHT else {}
    raw = {"model": {"path": "owner/model"}, **teacher, "method": {"name": name}}
    return parse_config(raw, "recipe.toml")


ENGINES: dict[str, Callable[[str], object]] = {
    "embedded": lambda name: accepted_here(recipe(name)),
    "TRL": lambda name: refuse(lacking(METHODS[name](), reported=False, taught=True)),
    "verl": lambda name: refuse(verl.lacking(METHODS[name]())),
    "Tinker": lambda name: tinker.require(METHODS[name]()),
    "SkyRL": lambda name: skyrl.require(METHODS[name]()),
    "prime-rl": lambda name: prime_rl.require(METHODS[name]()),
}
# What a refusal says -> what the engine lacks, in a cell.
REASONS = {
    r"needs (\w+)": r"`\1`",
    r"reads the (rewards)": r"`\1`",
    "adapts the temperature": "temperatures by token",
    "looks at a whole update": "a look at a whole update",
    "several passes": "several passes",
    "remembers": "a memory between batches",
    "into its loss": "inputs of a response in the loss",
    "makes its own credit": "credit by the method",
    "credit of": "old log-probabilities for credit",
    "not proportional": "advantages that scale with rewards",
    "compares the old policy": "an old policy apart from the sampler",
    "divides by": "its denominator",
}


def runs_where() -> str:
    """One row for each engine and thing that it lacks: every engine is asked about every method."""
    found: dict[tuple[str, str], list[str]] = {}
    for engine, ask in ENGINES.items():
        for name in METHODS:
            if (why := answer(name, ask)) != "runs":
                found.setdefault((engine, why), []).append(name)
    rows = [(engine, why, " ".join(map(method_link, names))) for (engine, why), names in found.items()]
    return table(("engine", "lacks", "so it rejects"), rows)


def answer(method: str, ask: Callable[[str], object]) -> str:
    """Whether an engine takes a method, and otherwise why not."""
    try:
        ask(method)
    except Unsupported as error:
        found = ((re.search(pattern, error.args[0]), cell) for pattern, cell in REASONS.items())
        return next(match.expand(cell) for match, cell in found if match)
    return "runs"


TABLES: dict[str, dict[str, Callable[[], str]]] = {
    "trl": {"losses": trl_losses},
    "trl_reference": {"fields": trl_fields},
    "verl": {"fields": verl_fields},
    "engines": {"methods": runs_where},
}
