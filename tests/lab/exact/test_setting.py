"""The axes of a study: a network whose states share parameters, Adam, sizes of groups, a sampler that differs."""

import dataclasses

import pytest
import torch

import tokenpo
from tokenpo.core.parts import RolloutCorrection
from tokenpo.lab.exact import measures, training
from tokenpo.lab.exact.contestant import Contestant
from tokenpo.lab.exact.model import Network, Table, policy
from tokenpo.lab.exact.setting import Setting
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
