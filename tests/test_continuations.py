"""Credit that is bought: the yardstick is DAPO's own progress with more groups, and the page is current."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import tokenpo
from tokenpo.lab.exact.contestant import Contestant
from tokenpo.lab.exact.estimate import Estimate
from tokenpo.lab.exact.measures import observe, useful
from tokenpo.lab.exact.model import Table
from tokenpo.lab.exact.setting import Setting
from tokenpo.lab.exact.worlds import WORLDS

ROOT = Path(__file__).parents[1]


@pytest.fixture
def bought(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("continuations")


def test_progress_with_more_groups_is_what_is_measured_there(bought: ModuleType) -> None:
    """DAPO with three times as many groups, in a world where it has much noise; by four standard errors."""
    dapo, model = Contestant("dapo", tokenpo.method("dapo")), Table(WORLDS["wandering_sure"]())
    few = useful(observe(dapo, model, "init"))
    many = useful(observe(dapo, model, "init", Setting(batch=24)))
    assert many.value - few.value > 0.15
    assert bought.at_tokens(3.0, few.value) == pytest.approx(many.value, abs=4 * (few.error + many.error))


def test_what_a_method_samples(bought: ModuleType) -> None:
    """`two_modes` has two tokens a response. One continuation from each of the 64 second tokens, of which those of a
    group with the same first token are one: at most four of eight, each of one token, beside 16 of the group."""
    plan = tomllib.loads((bought.DOCS / "continuations.toml").read_text(encoding="utf-8"))
    entered = bought.contestants(plan)
    assert bought.cost(entered["dapo"], "two_modes") == 1.0
    assert 1 < bought.cost(entered["half_1"], "two_modes") <= 1 + 4 / 16


def test_the_rule(bought: ModuleType) -> None:
    def seen(value: float, error: float) -> Estimate:
        return Estimate(value, (value - error, value + error))

    plan = {"pays": {"mean": 0.01, "worst": -0.03}}
    assert bought.pays(plan, {"a": seen(0.03, 0.001), "b": seen(0.0, 0.001)})
    assert not bought.pays(plan, {"a": seen(0.01, 0.001), "b": seen(0.0, 0.001)})
    assert not bought.pays(plan, {"a": seen(0.09, 0.001), "b": seen(-0.04, 0.001)})


def test_the_page_is_current(bought: ModuleType) -> None:
    plan, halves = (
        tomllib.loads((bought.DOCS / f"{name}.toml").read_text(encoding="utf-8"))
        for name in ("continuations", "composition")
    )
    page = bought.page(plan, halves["chosen"], halves["held_out"], bought.load())
    assert bought.PAGE.read_text(encoding="utf-8") == page
