"""The page of the family: every method once, in the group of the slot it changes, with what it changes."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from types import ModuleType

import pytest

import tokenpo
from tokenpo.core.parts import FixedBounds, GroupAdvantage, ReferenceKl, TokenMean
from tokenpo.methods import METHODS

ROOT = Path(__file__).parents[1]


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tools")
    import family

    assert Path(family.__file__ or "").parent == ROOT / "tools"
    return sys.modules["family"]


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
def test_a_cell_says_what_differs(family: ModuleType, slot: str, objective: tokenpo.Objective, said: str) -> None:
    assert family.changes(slot, objective, GRPO) == said


def test_a_part_of_the_same_kind_shows_only_its_own_numbers(family: ModuleType) -> None:
    narrow = dataclasses.replace(GRPO.surrogate, bounds=FixedBounds(0.1, 0.2))
    assert family.differences(narrow, GRPO.surrogate) == ["low=0.1"]


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("grpo", ""),
        ("dr_grpo", ""),
        ("dapo", ""),
        ("gtpo", "credit"),
        ("sapo", "surrogate"),
        ("clip_cov", "weights"),
        ("hapo", "several"),
        ("tepo", "several"),
        ("archer", "several"),
    ],
)
def test_groups_follow_the_slots(family: ModuleType, name: str, group: str) -> None:
    assert family.group(tokenpo.method(name), GRPO) == group


def test_a_penalty_alone_is_a_group(family: ModuleType) -> None:
    held = dataclasses.replace(GRPO, penalties=(ReferenceKl(0.1),), aggregate=TokenMean())
    assert family.group(held, GRPO) == "penalties"


def test_every_method_stands_on_the_page_twice(family: ModuleType) -> None:
    """Once with its slots (but the base, which stands above the tables), once with its numbers."""
    changed, numbers = family.page(METHODS, "family.png").split("## How hard")
    for name in METHODS:
        assert changed.count(f"| [`{name}`](methods/{name}.md) |") == (name != "grpo"), name
        assert numbers.count(f"[`{name}`](methods/{name}.md)") == 1, name
    assert "| [`sapo`](methods/sapo.md) | +1 |  | 0.266 | 0.684 | 0.898 | 1 | 1.1 | 1.27 | 1.57 | 0.723 |" in numbers
    assert "[`rloo`](methods/rloo.md), " in numbers  # its credit is given here, so it is among those with GRPO's c


def test_the_fingerprint_follows_options_and_numbers(family: ModuleType) -> None:
    def built(**options: float) -> dict:
        return {"grpo": lambda: tokenpo.method("grpo", **options)}

    usual = family.fingerprint(built())
    assert usual == family.fingerprint(built())
    assert len({usual, family.fingerprint(built(high=0.201)), family.fingerprint(built(low=0.0))}) == 3


def test_the_picture_is_small_and_drawn_from_these_methods(family: ModuleType, tmp_path: Path) -> None:
    picture = ROOT / "docs" / "family.png"
    assert picture.stat().st_size < 400_000
    assert family.drawn_from(picture) == family.fingerprint(METHODS)
    assert family.drawn_from(tmp_path / "none.png") == ""
    (tmp_path / "other.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert family.drawn_from(tmp_path / "other.png") == ""


def test_panels_stand_in_the_order_of_the_groups(
    family: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn = []
    monkeypatch.setattr(family, "write_family", lambda objectives, out, note: drawn.extend([*objectives, note]))
    few = {name: METHODS[name] for name in ("hapo", "sapo", "gtpo", "dapo", "grpo", "rloo")}
    family.draw(few, tmp_path / "family.png")
    assert drawn == ["dapo", "grpo", "gtpo", "rloo", "sapo", "hapo", family.fingerprint(few)]
