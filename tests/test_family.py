"""The page of the family: every method once, in the group of the slot it changes, with what it changes."""

import dataclasses
from pathlib import Path

import family
import pytest

import tokenpo
from tokenpo.core.parts import GroupAdvantage, ReferenceKl, TokenMean

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


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("grpo", ""), ("dr_grpo", ""), ("dapo", ""), ("gtpo", "credit"), ("sapo", "surrogate"),
        ("clip_cov", "weights"), ("hapo", "several"), ("tepo", "several"), ("archer", "several"),
    ],
)  # fmt: skip
def test_groups_follow_the_slots(name: str, group: str) -> None:
    assert family.group(tokenpo.method(name), GRPO) == group


def test_a_method_is_told_by_the_panels_in_which_it_bends() -> None:
    assert "influence" in [panel.axis.key for panel in family.telling(tokenpo.method("thr"), GRPO)]
    assert [panel.axis.key for panel in family.telling(tokenpo.method("lopti"), GRPO)] == ["ratio", "length"]
    assert [panel.axis.key for panel in family.telling(GRPO, GRPO)] == ["ratio", "length", "accuracy"]
