"""What verl cannot honour, case by case; and no refusal of its adapter without a case."""

from __future__ import annotations

import pytest

from foreign_support import need
from refusal_cases import Answers, Case, check_case, check_page, check_sites
from refusal_cases.case import SOURCE

need("transfer_queue", "verl's V1 trainer is not installed: what it cannot honour was not asked of it")
need("verl.trainer.ppo.v1", "verl's V1 trainer is not installed: what it cannot honour was not asked of it")

from refusal_cases.verl import CASES  # noqa: E402 - imports verl


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return Answers(tmp_path_factory.mktemp("asked"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.asked)
def test_refused_in_one_sentence(case: Case, answers: Answers) -> None:
    check_case("verl", case, answers(case))


def test_every_refusal_has_a_case_and_its_row(answers: Answers) -> None:
    found = [answers(case) for case in CASES]
    check_sites(sorted((SOURCE / "engines" / "verl").glob("*.py")), found)
    check_page("verl", CASES, found)
