"""What the embedded engine cannot honour, case by case; and no refusal outside the foreign engines without a case."""

from __future__ import annotations

import pytest

from refusal_cases import Answers, Case, check_case, check_page, check_sites
from refusal_cases.case import SOURCE, Said
from refusal_cases.checks import Site, source_sites, told
from refusal_cases.embedded import CASES
from tokenpo.base.errors import Unsupported

# Each has a test of its own.
FOREIGN = {"advantage_only.py", "prime_rl", "skyrl", "tinker", "trl", "verl", "vllm"}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return Answers(tmp_path_factory.mktemp("asked"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.asked)
def test_refused_in_one_sentence(case: Case, answers: Answers) -> None:
    check_case("embedded", case, answers(case))


def test_every_refusal_has_a_case_and_its_row(answers: Answers) -> None:
    found = [answers(case) for case in CASES]
    files = [path for path in SOURCE.rglob("*.py") if not FOREIGN.intersection(path.relative_to(SOURCE).parts)]
    check_sites(sorted(files), found)
    check_page("embedded", CASES, found)


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
    said = [Said(Unsupported, sentence, place) for sentence, place in (
        ("x", ("f.py", 11)), ("x", ("f.py", 12)), ("y", ("f.py", 13)), ("y", ("g.py", 11)),
    )]  # fmt: skip
    assert told(site, said) == 1
    assert told(site, [*said, Said(Unsupported, "y", ("f.py", 10))]) == 2
