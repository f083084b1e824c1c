"""The page of the family: every method once, in the group of the slot it changes, with what it changes."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import family
import pytest

import tokenpo
from tokenpo.core.parts import FixedBounds, GroupAdvantage, ReferenceKl, TokenMean
from tokenpo.methods import METHODS

ROOT = Path(__file__).parents[1]
GRPO = tokenpo.method("grpo")


@pytest.mark.parametrize(
    ("slot", "objective", "said"),
    [
        ("credit", GRPO, ""),
        ("credit", dataclasses.replace(GRPO, credit=GroupAdvantage(std=False)), "`std=False`"),
        ("aggregate", dataclasses.replace(GRPO, aggregate=TokenMean()), "`TokenMean`"),
        ("penalties", dataclasses.replace(GRPO, penalties=(ReferenceKl(0.1),)), "`ReferenceKl(K3)`"),
        ("surrogate", tokenpo.method("dapo"), "`high=0.28`, `dual=10.0`"),
        ("surrogate", tokenpo.method("tepo"), "`GeometricToken`"),
        ("surrogate", tokenpo.method("aspo"), "`Asymmetric(SelectedBounds, HighInResponse)`"),
        ("weights", tokenpo.method("stapo"), "`NormalisedWeight(Drop, Spurious, CurrentMean)`"),
        ("temperature", tokenpo.method("hapo"), "`AdaptiveTemperature`"),
        ("temperature", tokenpo.method("dapo"), ""),
        ("needs", tokenpo.method("tepo"), "`entropy`, `old_entropy`"),
        ("scope", tokenpo.method("kl_cov"), "`batch`"),
    ],
)
def test_a_cell_says_what_differs(slot: str, objective: tokenpo.Objective, said: str) -> None:
    assert family.changes(slot, objective, GRPO) == said


def test_a_part_of_the_same_kind_shows_only_its_own_numbers() -> None:
    narrow = dataclasses.replace(GRPO.surrogate, bounds=FixedBounds(0.1, 0.2))
    assert family.differences(narrow, GRPO.surrogate) == ["low=0.1"]


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("grpo", ""), ("dr_grpo", ""), ("dapo", ""), ("gtpo", "credit"), ("sapo", "surrogate"),
        ("clip_cov", "weights"), ("hapo", "several"), ("tepo", "several"), ("archer", "several"),
    ],
)  # fmt: skip
def test_groups_follow_the_slots(name: str, group: str) -> None:
    assert family.group(tokenpo.method(name), GRPO) == group


def test_a_penalty_alone_is_a_group() -> None:
    held = dataclasses.replace(GRPO, penalties=(ReferenceKl(0.1),), aggregate=TokenMean())
    assert family.group(held, GRPO) == "penalties"


def test_every_method_stands_on_the_page_twice() -> None:
    """Once with its slots (but the base, which stands above the tables), once with what its push depends on."""
    changed, pushed = (ROOT / "docs" / "family.md").read_text(encoding="utf-8").split("## How hard")
    for name in METHODS:
        row = f"| [`{name}`](methods/{name}.md) |"
        assert changed.count(row) == (name != "grpo") and pushed.count(row) == 1, name


def test_only_equal_fingerprints_are_called_equal() -> None:
    """The page, which another test holds to the code, calls equal exactly the pairs that it lists."""
    _, _, pushed = (ROOT / "docs" / "family.md").read_text(encoding="utf-8").partition("## How hard")
    dependences, _, reasons = pushed.partition("### Methods with the same fingerprint")
    equal = {
        frozenset(pair) for pair in re.findall(r"^\| \[`(\w+)`\].* \| `(\w+)`: equal \|$", dependences, re.MULTILINE)
    }
    said = {frozenset(pair) for pair in re.findall(r"^- `(\w+)` and `(\w+)` differ in ", reasons, re.MULTILINE)}
    assert equal == said == {frozenset({"gspo", "gspo_token"}), frozenset({"grpo", "igrpo"})}


def test_the_picture_holds_every_method_and_nothing_from_outside() -> None:
    picture = (ROOT / "docs" / "family.svg").read_text(encoding="utf-8")
    assert len(picture) < 400_000 and "http" not in picture.replace("http://www.w3.org/2000/svg", "")
    names = re.findall(r'<text class="n"[^>]*>(\w+)<', picture)
    assert names[0] == "grpo" and sorted(names) == sorted(METHODS)
    assert names.index("rloo") < names.index("sapo") < names.index("hapo")  # by the slot that they change


def test_a_method_is_told_by_the_panels_in_which_it_bends() -> None:
    assert "influence" in [panel.axis.key for panel in family.telling(tokenpo.method("thr"), GRPO)]
    assert [panel.axis.key for panel in family.telling(tokenpo.method("lopti"), GRPO)] == ["ratio", "length"]
    assert [panel.axis.key for panel in family.telling(GRPO, GRPO)] == ["ratio", "length", "accuracy"]
