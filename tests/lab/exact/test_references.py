"""The rows that come with the package: those of docs/exact.json, and what this program makes."""

import math

import pytest

from counted_studies import EXACT, counted
from tokenpo.cli.main import main
from tokenpo.lab.exact import study, training
from tokenpo.lab.exact.setting import USUAL, Setting
from tokenpo.lab.exact.worlds import LARGE, WORLDS


def test_a_first_run_makes_the_method_alone(monkeypatch, capsys):
    """The references come with the package, in the usual setting."""
    runs = counted(monkeypatch, EXACT)
    assert study.shipped(Setting(group=4)) == {}
    assert main(["exact", "grpo", "--world", "two_modes"]) == 0
    assert runs == ["grpo"] and "exact credit" in capsys.readouterr().out
    runs.clear()
    assert main(["exact", "grpo", "--world", "two_modes", "--set", "group=4", "--set", "batch=16"]) == 0
    assert runs == ["dapo", "exact credit", "grpo"]


def test_all_methods_are_those_without_a_teacher(monkeypatch):
    """One of which cannot be run in a world at all."""
    runs = counted(monkeypatch, EXACT)
    assert main(["exact", "--world", "two_modes"]) == 0
    assert {"grpo", "ppo"} <= set(runs) and not {"opd", "gkd", "rlsd"} & set(runs)


def test_the_references_are_those_of_the_page():
    published = study.load(EXACT)
    for label, row in study.shipped(USUAL).items():
        assert row.objective == published[label].objective
        assert row.cells.keys() == published[label].cells.keys() >= WORLDS.keys(), "python tools/exact_references.py"
        for world, ours in row.cells.items():
            theirs = published[label].cells[world]
            assert ours.useful == theirs.useful and ours.curve == theirs.curve
            ours, theirs = (
                {key: x.value for key, x in cell.numbers.items() if not math.isnan(x.value)} for cell in (ours, theirs)
            )
            assert ours == theirs


SEEDS = training.SEEDS
EVERY = [(label, world) for label in (study.BASE, study.PERFECT) for world in WORLDS | LARGE]


def differing(label: str, world: str) -> list[str]:
    """The numbers of a cell that another run makes differently. They are kept with four digits, and another machine
    may round the last of them another way."""
    kept = study.shipped(USUAL)[label].cells[world].numbers
    (contestant,) = (c for c in study.references() if c.label == label)
    numbers = study.study(contestant, (WORLDS | LARGE)[world]()).numbers
    assert numbers.keys() == kept.keys() - {"init/captured"}
    return [
        key for key, x in numbers.items() if x.value != pytest.approx(kept[key].value, rel=2e-3, abs=1e-6, nan_ok=True)
    ]


@pytest.mark.parametrize(("label", "seeds"), [(study.BASE, SEEDS), (study.PERFECT, 1)])
def test_a_reference_can_be_made_again_at_its_step_size(label, seeds, monkeypatch):
    """Noisy training, which takes most of the time, for DAPO alone: the other differs from it in its credit."""
    size = study.shipped(USUAL)[label].cells["two_modes"].numbers["noisy/size"].value
    monkeypatch.setattr(training, "GRID", (size,))
    monkeypatch.setattr(training, "START", 0)
    monkeypatch.setattr(training, "SEEDS", seeds)
    wrong = differing(label, "two_modes")
    assert [key for key in wrong if seeds == SEEDS or not key.startswith("noisy/")] == []


@pytest.mark.slow
@pytest.mark.parametrize(("label", "world"), EVERY)
def test_a_reference_can_be_made_again(label, world):
    if world not in study.shipped(USUAL)[label].cells:
        pytest.skip("not among the references")
    assert differing(label, world) == []
