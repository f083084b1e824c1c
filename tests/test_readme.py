"""README against the package: its commands are there, and its numbers and findings are those of docs/exact.json."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tokenpo
from tokenpo.cli.main import main
from tokenpo.lab.exact import study
from tokenpo.lab.exact.worlds import WORLDS
from tokenpo.methods import METHODS

ROOT = Path(__file__).parents[1]
RUN = [
    name
    for name in METHODS
    if not any(x.startswith("teacher") for x in tokenpo.method(name).needs)
    and not (tokenpo.method(name).coalitions or tokenpo.method(name).drafts)
]
TEXT = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


@pytest.fixture(scope="module")
def rows() -> dict[str, study.Row]:
    return study.load(ROOT / "docs" / "exact.json")


def of(row: study.Row, key: str) -> dict[str, float]:
    """world -> number."""
    return {world: row.cells[world].numbers[key].value for world in WORLDS}


def test_the_commands_are_there(capsys: pytest.CaptureFixture) -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"make (\w+)", TEXT)) <= set(targets)
    words = set(re.findall(r"`tokenpo (\w+)", TEXT))
    assert words
    for word in words:
        with pytest.raises(SystemExit, match="0"):
            main([word, "--help"])


def test_it_is_one_screen() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 50 and sum(line.startswith("![") for line in lines) == 1


def test_following_entropy_stops(rows: dict[str, study.Row]) -> None:
    """No useful progress where the policy is sure of a wrong token."""
    assert "HAPO and forking tokens stop learning where the policy is sure of a wrong token" in TEXT
    for name in ("hapo", "forking_tokens"):
        for world in ("sure_fork_filler", "wandering_sure"):
            assert abs(of(rows[name], "init/useful")[world]) < 0.01


def test_on_the_bed_nothing_leads_dapo() -> None:
    """All differences of train-area from DAPO on both tasks; 0.03 is the margin that docs/bed.md registered."""
    assert "no method learns more than DAPO by the margin set before" in TEXT
    assert "the loose clips of CISPO and TEPO learn a little less" in TEXT
    page = (ROOT / "docs" / "bed.md").read_text(encoding="utf-8")
    found = re.findall(r"\| (\w+) \| train-area, (\w+) − dapo \| (\S+) \| (\S+) to (\S+) \|", page)
    assert {name for _, name, *_ in found} >= {"tepo", "hapo", "gtpo", "cispo"} and len(found) == 10
    assert all(float(middle) < 0.03 for *_, middle, _, _ in found)
    assert all(float(high) < 0 for _, name, _, _, high in found if name in ("cispo", "tepo"))


def test_on_policy_most_methods_follow_the_gradient(rows: dict[str, study.Row]) -> None:
    """Cosine of 0.99 or more with the true gradient in every world at every policy, where it is defined."""
    assert "most methods follow it on policy" in TEXT
    cosines = {
        name: [v for policy in ("init", "late", "stuck") for v in of(rows[name], f"{policy}/cosine").values() if v == v]
        for name in RUN
    }
    same = [name for name, values in cosines.items() if min(values) >= 0.99]
    assert len(same) > len(RUN) / 2, f"{len(same)} of {len(RUN)}"
