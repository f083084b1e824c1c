"""The rows that come with the package: those of docs/exact.json, and what this program makes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tokenpo.cli.main import main
from tokenpo.lab.exact import study
from tokenpo.lab.exact.contestant import Contestant
from tokenpo.lab.exact.setting import USUAL, Setting
from tokenpo.lab.exact.worlds import LARGE, WORLDS

EXACT = Path(__file__).parents[3] / "docs" / "exact.json"
SAMPLE = [("dapo", "two_modes"), ("exact credit", "easy_and_hard")]


def test_are_those_of_the_page() -> None:
    published = study.load(EXACT)
    for label, row in study.shipped(USUAL).items():
        assert row.objective == published[label].objective
        assert row.cells.keys() == published[label].cells.keys() >= WORLDS.keys(), "python tools/exact_references.py"
        for world, ours in row.cells.items():
            theirs = published[label].cells[world]
            assert ours.useful == theirs.useful and ours.curve == theirs.curve
            assert {k: x.value for k, x in ours.numbers.items() if not math.isnan(x.value)} == {
                k: x.value for k, x in theirs.numbers.items() if not math.isnan(x.value)
            }
    assert study.shipped(Setting(group=4)) == {}


def made_again(label: str, world: str) -> None:
    """Numbers are kept with four digits, and another machine may round the last of them another way."""
    (contestant,) = (c for c in study.references() if c.label == label)
    made, held = study.study(contestant, (WORLDS | LARGE)[world]()), study.shipped(USUAL)[label].cells[world]
    assert made.numbers.keys() == held.numbers.keys() - {"init/captured"}
    for key, x in made.numbers.items():
        assert x.value == pytest.approx(held.numbers[key].value, rel=2e-3, abs=1e-6, nan_ok=True), key


@pytest.mark.parametrize(("label", "world"), SAMPLE)
def test_can_be_made_again(label: str, world: str) -> None:
    made_again(label, world)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["dapo", "exact credit"])
def test_all_can_be_made_again(label: str) -> None:
    for world in study.shipped(USUAL)[label].cells:
        made_again(label, world)


def test_a_first_run_makes_the_method_alone(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    runs: list[str] = []

    def quick(contestant: Contestant, *given: object) -> study.Cell:
        runs.append(contestant.label)
        return study.shipped(USUAL)["dapo"].cells["two_modes"]

    monkeypatch.setattr(study, "study", quick)
    assert main(["exact", "grpo", "--world", "two_modes"]) == 0
    assert runs == ["grpo"] and "exact credit" in capsys.readouterr().out
    runs.clear()
    assert main(["exact", "grpo", "--world", "two_modes", "--set", "group=4", "--set", "batch=16"]) == 0
    assert runs == ["dapo", "exact credit", "grpo"]
