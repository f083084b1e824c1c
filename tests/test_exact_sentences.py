"""Sentences of the method pages, of studies whose numbers are given."""

import math

import exact_sentences as said
import pytest

from tokenpo.lab.estimate import Estimate
from tokenpo.lab.exact import training
from tokenpo.lab.exact.study import BASE, PERFECT, Cell, Number, Row
from tokenpo.lab.exact.worlds import WORLDS

WORLD = WORLDS["sure_fork_filler"]()
USUAL = {
    "init/useful": 0.6, "init/cosine": 1.0, "init/deciding": 0.5, "drift/toward": 0.2,
    "train/batches": 10.0, "train/J": 0.91, "noisy/area": 0.95,
}  # fmt: skip


def row(label: str, batches: int = 10, **changes: float) -> Row:
    numbers = {key: Number(changes.get(key.replace("/", "_"), x), 0.01) for key, x in USUAL.items()}
    return Row(label, "", {WORLD.name: Cell(numbers, Estimate(0.6), [0.1] * batches)})


def sentences_of(changed: Row) -> tuple[str, ...]:
    rows = [row(BASE), row(PERFECT, init_useful=0.9), changed]
    return tuple(sentence(changed, rows[0], [WORLD]) for sentence in (said.helps, said.fails, said.why, said.trains))


def test_as_the_others():
    helps, fails, why, trains = sentences_of(row("x"))
    assert helps == "Nowhere is its update more useful than DAPO's by 0.01 and 2 standard errors."
    assert trains == "The area under the reward is 0.950 in the mean over worlds, DAPO's 0.950."
    assert fails == "In no world does it end below the goal or fall behind DAPO's update."
    assert why.startswith("On policy its expected update is the gradient's direction")


def test_a_gain():
    helps, _, why, trains = sentences_of(row("x", init_useful=0.75, init_deciding=0.8, noisy_area=0.9))
    assert helps == "The useful progress of an update is more than DAPO's: 0.75 for 0.6 in sure_fork_filler."
    assert "is 0.900 in the mean over worlds, DAPO's 0.950." in trains
    within, *_ = sentences_of(row("x", init_useful=0.627))  # two standard errors are 0.028
    assert within.startswith("Nowhere")
    assert why == (
        "It puts 80 % of the squared update on tokens that decide, in the mean over worlds; DAPO puts 50 % there."
    )


@pytest.mark.parametrize(
    ("batches", "end"), [(12, "stands still at J = 0.08"), (training.MOST + 1, "is at J = 0.08 after")]
)
def test_a_fixed_point(batches, end):
    changed = row("x", batches, init_useful=0.0, init_deciding=0.0, train_batches=math.inf, train_J=0.08)
    _, fails, why, _ = sentences_of(changed)
    premise = "sure_fork_filler (where “credit belongs where the policy is uncertain” is false)"
    assert f"Expected training does not reach J = 0.9: in {premise} it {end}" in fails
    assert fails.endswith(f"The useful progress of an update is less than DAPO's: 0 for 0.6 in {premise}.")
    assert why == "Its update leaves the tokens that decide exactly as they are in sure_fork_filler."


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        ({"init_cosine": 0.8}, "Its expected update points elsewhere than the gradient of the reward: cosine 0.8"),
        ({"init_cosine": 0.97}, "On policy"),  # within two standard errors of 0.98
        ({"drift_toward": 0.7}, "Its clip leaves more of an update once"),
        ({"drift_toward": 0.1}, "Its clip leaves less of an update once"),
    ],
)
def test_why(changes, begins):
    assert sentences_of(row("x", **changes))[2].startswith(begins)
