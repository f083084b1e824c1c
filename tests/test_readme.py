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
RUN = [name for name in METHODS if not any(x.startswith("teacher") for x in tokenpo.method(name).needs)]
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


def test_in_twelve_worlds_dapo_is_0_and_perfect_credit_1(rows: dict[str, study.Row]) -> None:
    assert "in twelve worlds" in TEXT and len(WORLDS) == 12
    assert "1 is perfect credit for every token, 0 is DAPO" in TEXT
    assert set(of(rows["dapo"], "init/captured").values()) == {0.0}
    assert set(of(rows["exact credit"], "init/captured").values()) == {1.0}


def test_no_method_gets_much_of_it_in_all_worlds(rows: dict[str, study.Row]) -> None:
    assert "Without a perfect critic no method gets much of it in all worlds" in TEXT
    without = [name for name in RUN if "value" not in tokenpo.method(name).needs]
    least = {name: min(of(rows[name], "init/captured").values()) for name in without}
    assert max(least.values()) < 0.1, max(least, key=least.__getitem__)


def test_following_entropy_gains_and_stops(rows: dict[str, study.Row]) -> None:
    """HAPO and forking tokens gain beyond two standard errors where decisions are uncertain, and have no useful
    progress where the policy is sure of a wrong one."""
    assert "HAPO and forking tokens, which follow entropy, gain where decisions are uncertain and stop learning" in TEXT
    for name in ("hapo", "forking_tokens"):
        for world in ("fork_sure_filler", "wandering_fork"):
            gain = rows[name].cells[world].numbers["init/captured"]
            assert gain.value > 2 * gain.error
        for world in ("sure_fork_filler", "wandering_sure"):
            assert abs(of(rows[name], "init/useful")[world]) < 0.01


def test_on_policy_most_methods_follow_the_gradient(rows: dict[str, study.Row]) -> None:
    """Cosine of 0.99 or more with the true gradient in every world at every policy, where it is defined."""
    assert "On policy most methods point along the true gradient" in TEXT
    cosines = {
        name: [v for policy in ("init", "late", "stuck") for v in of(rows[name], f"{policy}/cosine").values() if v == v]
        for name in RUN
    }
    same = [name for name, values in cosines.items() if min(values) >= 0.99]
    assert len(same) > len(RUN) / 2, f"{len(same)} of {len(RUN)}"
