"""What SkyRL and prime-rl do not hand over, case by case; and no refusal of their adapters without a case."""

from __future__ import annotations

import pytest

from refusal_cases import Answers, Case, check_case, check_page, check_sites
from refusal_cases.case import SOURCE
from refusal_cases.handed import CASES


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return Answers(tmp_path_factory.mktemp("asked"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.asked)
def test_refused_in_one_sentence(case: Case, answers: Answers) -> None:
    check_case("handed", case, answers(case))


def test_every_refusal_has_a_case_and_its_row(answers: Answers) -> None:
    found = [answers(case) for case in CASES]
    files = [*(SOURCE / "engines").glob("*_rl/*.py"), *(SOURCE / "engines" / "skyrl").glob("*.py")]
    check_sites(sorted([*files, SOURCE / "engines" / "advantage_only.py"]), found)
    check_page("handed", CASES, found)
