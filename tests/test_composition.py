"""The composition of ours: the rule that judges, on numbers to follow by hand, and a page that is current."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from tokenpo.lab.exact.estimate import Estimate

ROOT = Path(__file__).parents[1]


@pytest.fixture
def composition(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("composition")


def seen(value: float, error: float) -> Estimate:
    """Two replicates e apart on either side have the jackknife error sqrt(1/2 · 2 e²) = e."""
    return Estimate(value, (value - error, value + error))


@pytest.mark.parametrize(
    ("cells", "rule", "held"),
    [
        ([(0.02, 0.001), (0.0, 0.001)], {"mean": 0.01, "worst": -0.01}, True),
        ([(0.02, 0.001), (-0.001, 0.001)], {"mean": 0.01, "worst": -0.01}, False),  # mean 0.0095
        ([(0.04, 0.001), (-0.013, 0.001)], {"mean": 0.01, "worst": -0.01}, False),  # below by three errors
        ([(0.04, 0.001), (-0.011, 0.001)], {"mean": 0.01, "worst": -0.01}, True),  # by one
        ([(0.02, 0.03), (0.02, 0.03)], {"mean": 0.01, "worst": -0.1}, False),  # 0.02 ± 0.021: not above 0
        ([(-0.005, 0.03), (0.0, 0.03)], {"mean": -0.01, "worst": -0.1}, True),  # no gain was asked for
    ],
)
def test_the_rule(composition: ModuleType, cells: list, rule: dict, held: bool) -> None:
    assert composition.meets(rule, {str(k): seen(*cell) for k, cell in enumerate(cells)}) is held


def test_no_candidate_but_the_chosen_one_was_run_on_the_held_out_half(composition: ModuleType) -> None:
    plan = tomllib.loads((composition.DOCS / "composition.toml").read_text(encoding="utf-8"))
    found, _ = composition.load()
    best = composition.winner(plan, found)
    assert not set(plan["chosen"]) & set(plan["held_out"])
    assert {c for c in plan["candidates"] if set(found[c]) & set(plan["held_out"])} == {best}


def test_the_page_is_current(composition: ModuleType) -> None:
    plan = tomllib.loads((composition.DOCS / "composition.toml").read_text(encoding="utf-8"))
    found, trained = composition.load()
    assert composition.PAGE.read_text(encoding="utf-8") == composition.page(plan, found, trained)
