"""Many prompts in one network: the world, the choice of a size, and the page."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def lessons() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "tools")
        return importlib.import_module("lessons")


def test_a_rule_can_be_learnt_and_prompts_share_its_weights(lessons: ModuleType) -> None:
    """Five tokens of 0.97 and one of four; all is right once the network says so of every state."""
    model = lessons.Lessons(8)
    world, start = model.world, model.start()
    assert float(lessons.truth(world, model.logits(start)).J) == pytest.approx(0.97**5 / 4)
    right = torch.tensor([[leads != 0.0 for leads in state.to] for state in world.states]).double()
    assert right.sum(1).tolist() == [1] * 48
    assert float(lessons.truth(world, 40 * right).J) == pytest.approx(1)
    way = torch.zeros_like(world.initial)
    way[5] = right[5] - 0.25  # the last token of the first prompt
    moved = model.logits(start + 0.1 * model.back(start, way)) - model.logits(start)
    assert moved[6:].abs().max() > 0.1 * moved[5].abs().max() > 0


def test_training_raises_the_reward(lessons: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lessons, "BATCHES", 5)
    model = lessons.Lessons(8)
    assert 0.21 < lessons.run(model, "dapo", "adam", 0.0, 0) < 0.2147
    assert lessons.run(model, "dapo", "adam", 0.4, 0) > 0.4
    assert lessons.run(model, "dapo", "adam", 0.4, 0) != lessons.run(model, "dapo", "scaled", 0.4, 0)


def test_a_size_is_chosen_by_the_tuning_and_judged_by_other_seeds(lessons: ModuleType) -> None:
    runs = {}
    for method, size, seed in itertools.product(("dapo", "cispo"), lessons.SIZES, (*lessons.TUNING, *lessons.TEST)):
        height = 0.5 - abs(size - 0.4) + (0.03 * (method == "cispo") if seed in lessons.TEST else 0.01 * (seed % 2))
        runs[f"8/adam/{method}/{size}/{seed}"] = height
    assert lessons.best(runs, 8, "adam", "cispo") == 0.4
    assert lessons.lead(runs, 8, "adam", "cispo").value == pytest.approx(0.03)
    runs |= {f"8/adam/cispo/{size}/{seed}": 0.1 for size in lessons.SIZES for seed in lessons.TUNING}
    assert lessons.best(runs, 8, "adam", "cispo") == 0.05  # of equal ones the smallest


def test_what_is_said_of_them(lessons: ModuleType) -> None:
    """docs/lessons.md, the log and finding 18 of docs/exact.md."""
    runs = lessons.made()
    leads = {
        (prompts, steps, m): lessons.lead(runs, prompts, steps, m)
        for prompts, steps, m in itertools.product(lessons.PROMPTS, lessons.STEPS, ("cispo", "tepo", "eb_cispo"))
    }
    assert [key for key, x in leads.items() if x.value < 2 * x.error] == [(8, "adam", "eb_cispo")]
    adam, scaled = (
        f"{leads[128, s, 'cispo'].value:.3f} ± {leads[128, s, 'cispo'].error:.3f}" for s in ("adam", "scaled")
    )
    log, exact = (" ".join((ROOT / "docs" / f"{name}.md").read_text("utf-8").split()) for name in ("log", "exact"))
    assert f"leads DAPO by {adam} with Adam and by {scaled} with scaled steps" in log
    assert f"CISPO still leads by {adam}." in exact


def test_the_page_is_what_the_numbers_say(lessons: ModuleType) -> None:
    assert lessons.main(["--check"]) == 0
