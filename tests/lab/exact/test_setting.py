"""The axes of a study: a network whose states share parameters, Adam, sizes of groups, a sampler that differs."""

import dataclasses
import math

import pytest
import torch

import tokenpo
from tokenpo.core.parts import RolloutCorrection
from tokenpo.lab.estimate import Estimate
from tokenpo.lab.exact import measures, page, training
from tokenpo.lab.exact.contestant import Contestant
from tokenpo.lab.exact.model import Network, Table, policy
from tokenpo.lab.exact.setting import Setting
from tokenpo.lab.exact.study import BASE, PERFECT, Cell, Number, Row
from tokenpo.lab.exact.truth import slopes, truth
from tokenpo.lab.exact.worlds import WORLDS

GRPO = Contestant("grpo", tokenpo.method("grpo"))


def test_network_begins_as_the_table():
    world = WORLDS["lucky_guess"]()
    network = Network(world)
    torch.testing.assert_close(network.logits(network.start()), world.initial, rtol=0, atol=1e-14)
    assert float(truth(world, network.logits(policy(network, "late"))).J) == pytest.approx(0.95, abs=1e-9)


def test_gradient_goes_back_through_the_network():
    """Against differences of J in three of the parameters, (J(+e) - J(-e)) / 2e, whose error is of order e² = 1e-10."""
    network = Network(WORLDS["forks_between_sure"]())
    at = network.start()
    found = network.back(at, slopes(network.world, network.logits(at))["J"])
    for place in (0, 40, len(at) - 1):
        e = torch.zeros_like(at).index_fill(0, torch.tensor([place]), 1e-5)
        up, down = (float(truth(network.world, network.logits(x)).J) for x in (at + e, at - e))
        assert float(found[place]) == pytest.approx((up - down) / 2e-5, abs=1e-9)


def test_states_interfere_in_a_network_alone():
    """A step on one state moves those of the same length most."""
    world = WORLDS["forks_between_sure"]()
    way = torch.zeros_like(world.initial)
    way[world.index["on2"], 0] = 1
    for model, shared in ((Table(world), False), (Network(world), True)):
        at = model.start()
        moved = (model.logits(at + 1e-4 * model.back(at, way)) - world.initial).norm(dim=-1)
        assert (float(moved[world.index["off2"]]) > 1e-6) is shared
        assert float(moved[world.index["on2"]]) == float(moved.max())


@pytest.mark.parametrize("name", ["hot", "rounded"])
def test_a_sampler_that_differs_is_corrected_by_its_ratio(name):
    """DAPO without correction is bent, with token ratios to the sampler it climbs the mean reward again."""
    setting, model = Setting(sampler=name), Table(WORLDS["free_length"]())
    plain = tokenpo.method("dr_grpo")
    whole = dataclasses.replace(plain, weights=(RolloutCorrection(True, False, 100.0, 0.0),))
    bent, mended = (
        measures.cosine(measures.observe(Contestant("x", x), model, "init", setting)).value for x in (plain, whole)
    )
    assert mended > 0.999 > bent + 1e-3


def test_sizes():
    """Twice the groups halve the noise: the ratio of signal to noise doubles, within the error of both."""
    model = Table(WORLDS["two_modes"]())
    small, large = (measures.snr(measures.observe(GRPO, model, "init", Setting(batch=b))) for b in (8, 16))
    assert large.value / small.value == pytest.approx(2, abs=4 * (large.error + small.error) / small.value)
    result = measures.observe(GRPO, model, "init", Setting(group=4, batch=4))
    assert result.single.shape == (measures.REPLICATES, measures.POPULATION, model.start().numel())


def test_adam():
    """Its first step is the sign of the gradient over √D, wherever there is one."""
    way = torch.tensor([[3.0, -0.01], [0.0, 2.0]], dtype=torch.float64)
    step = training.Adam().scaled(way, first=True)
    torch.testing.assert_close(step, way.sign() / 2, rtol=2e-6, atol=0)


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
    return tuple(said(changed, rows[0], [WORLD]) for said in (page.helps, page.fails, page.why, page.trains))


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


def test_a_world():
    rows = [row(BASE), row(PERFECT, init_useful=0.9), row("a", init_useful=0.7)]
    rows.append(row("b", init_useful=0.5, drift_toward=0.7))
    assert list(page.of_world(WORLD, rows)) == [
        "The useful progress of an update is 0.6 with DAPO and 0.9 with exact credit in its place.",
        "The most useful update is that of a, 0.7, the least that of b, 0.5.",
        "After a drift toward the gradient the update of b is the most useful, 0.7, that of a the least, 0.2.",
        "With all of them training arrives.",
    ]
    rows[2:] = [row("a"), row("b")]
    same = "After a drift toward the gradient the useful progress of an update is 0.2."
    assert list(page.of_world(WORLD, rows))[2] == same
