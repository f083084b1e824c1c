"""What each engine cannot honour, case by case; and no refusal in the source without a case."""

import functools
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from foreign_support import need
from refusal_cases.case import SOURCE, Case, Refusal, refusal
from refusal_cases.checks import Site, cases_at, check_case, check_page, check_sites, source_sites
from refusal_cases.page import TITLES
from tokenpo.base.errors import Unsupported
from tokenpo.engines.tinker.needs import REMEDIES
from tokenpo.engines.trl.objective import ALWAYS
from tokenpo.engines.verl import PROVIDES
from tokenpo.recipe.objective import TAUGHT

NEEDED = {"trl": "trl", "verl": "verl.trainer.ppo.v1"}
# Each engine's own files; all others are the embedded engine's.
FILES = {
    "handed": ("engines/advantage_only.py", "engines/prime_rl/*.py", "engines/skyrl/*.py"),
    **{engine: (f"engines/{engine}/*.py",) for engine in ("tinker", "trl", "verl", "vllm")},
}


def missing(engine: str) -> bool:
    return engine in NEEDED and find_spec(engine) is None


def cases(engine: str) -> list[Case]:
    if engine in NEEDED:
        need(NEEDED[engine], f"{engine} is not installed: what it cannot honour was not asked of it")
    return import_module(f"refusal_cases.{engine}").CASES


EACH = [(engine, case) for engine in TITLES if not missing(engine) for case in cases(engine)]
answer = functools.cache(refusal)


def files(engine: str) -> list[Path]:
    owned = {name: {path for pattern in FILES[name] for path in SOURCE.glob(pattern)} for name in FILES}
    return sorted(owned[engine] if engine in owned else set(SOURCE.rglob("*.py")).difference(*owned.values()))


@pytest.mark.parametrize(("engine", "case"), EACH, ids=[f"{engine}: {case.request}" for engine, case in EACH])
def test_refused_in_one_sentence(engine: str, case: Case) -> None:
    check_case(engine, case, answer(case))


@pytest.mark.parametrize("engine", TITLES)
def test_every_refusal_has_a_case_and_its_row(engine: str) -> None:
    found = [answer(case) for case in cases(engine)]
    check_sites(files(engine), found)
    check_page(engine, cases(engine), found)


def test_a_remedy_of_tinkers_names_engines_that_have_the_input() -> None:
    has = {"TRL": ALWAYS | TAUGHT, "verl": PROVIDES}
    for name, remedy in REMEDIES.items():
        assert all(engine not in remedy or name in provides for engine, provides in has.items()), name


TABLES = """
_KNOWN: tuple[str, ...] = ("a", "b", "c")

def one(given):
    if given:
        raise Unsupported(f"{given}")

def each(given):
    rows = {"x": 1, "y": 2}
    for name, value in rows.items():
        if value:
            raise Unsupported(f"{name}")
    for name in _KNOWN:
        if name in ("d", "e"):
            raise Unsupported(f"{name}")
    for name in given:
        raise Unsupported(f"{name}")
"""


def test_a_place_that_refuses_row_by_row_wants_a_case_for_each() -> None:
    found = list(source_sites(TABLES, "f.py"))
    assert [(site.function, site.rows) for site in found] == [("one", 1), ("each", 2), ("each", 2), ("each", 1)]
    site = Site("f.py", "each", 10, 12, 2)
    places = [("x", ("f.py", 11)), ("x", ("f.py", 12)), ("y", ("f.py", 13)), ("y", ("g.py", 11))]
    refusals = [Refusal(Unsupported, sentence, place) for sentence, place in places]
    assert cases_at(site, refusals) == 1
    assert cases_at(site, [*refusals, Refusal(Unsupported, "y", ("f.py", 10))]) == 2
