"""The exact values against the sum over all responses, one by one, and a wrong world against its error."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from enumerated import enumerated
from tokenpo.base.errors import TokenPOError
from tokenpo.lab.exact.model import Table, divergence, drifted, policy
from tokenpo.lab.exact.truth import slopes, truth
from tokenpo.lab.exact.world import State, World
from tokenpo.lab.exact.worlds import LARGE, WORLDS


def moved(world: World) -> torch.Tensor:
    """A policy at which nothing is special."""
    draws = torch.Generator().manual_seed(1)
    return world.initial + torch.randn(world.initial.shape, dtype=torch.float64, generator=draws)


@pytest.mark.parametrize("name", WORLDS)
def test_is_the_sum_over_all_responses(name):
    world = WORLDS[name]()
    every, logits = enumerated(world), moved(world).requires_grad_()
    logp, at = logits.log_softmax(-1), truth(world, logits)
    entropies = -(logp.exp() * logp).sum(-1)
    taken = logp[every.states, every.tokens] * every.mask
    p = world.shares[every.prompt] * taken.sum(1).exp()
    length = (p * every.mask.sum(1)).sum()
    means = {
        "J": (p * every.reward).sum(),
        "entropy": (p * (entropies[every.states] * every.mask).sum(1)).sum() / length,
        "length": length,
    }
    assert world.length == int(every.mask.sum(1).max())
    assert 8 <= len(p) <= 2000 and float(p.sum().detach()) == pytest.approx(1, abs=1e-13)
    exact = slopes(world, logits)
    for value, mean in ((at.J, means["J"]), (at.entropy, means["entropy"]), (at.length, means["length"])):
        torch.testing.assert_close(value, mean, rtol=0, atol=1e-13)
    for key, mean in means.items():
        slope = torch.autograd.grad(mean, logits, retain_graph=True)[0]
        torch.testing.assert_close(exact[key], slope, rtol=0, atol=1e-13)
    # The policy gradient theorem: token credit Q - V gives the gradient of J.
    credit = at.advantage.detach()[every.states, every.tokens] * every.mask
    theorem = torch.autograd.grad((p.detach()[:, None] * credit * taken).sum(), logits)[0]
    torch.testing.assert_close(theorem, exact["J"], rtol=0, atol=1e-13)


def test_sound_share():
    """Reasoned: 0.3 · 0.8 · 0.85 = 0.204; guessed: 0.7 · 0.25 = 0.175."""
    world = WORLDS["lucky_guess"]()
    assert float(truth(world, world.initial).sound) == pytest.approx(0.204 / 0.379, rel=1e-12)


@pytest.mark.parametrize(("name", "level"), [("late", 0.95), ("stuck", 0.03)])
@pytest.mark.parametrize("world", ["sparse_chain", "easy_and_hard", "paraphrases"])
def test_later_policies(world, name, level):
    chosen = (WORLDS | LARGE)[world]()
    assert float(truth(chosen, policy(Table(chosen), name)).J) == pytest.approx(level, abs=1e-9)


@pytest.mark.parametrize("way", ["toward", "away", "random"])
def test_drift(way):
    world = WORLDS["forks_between_sure"]()
    to = drifted(Table(world), way)
    assert divergence(world, world.initial, to) == pytest.approx(0.01, rel=1e-9)
    gain = float(truth(world, to).J - truth(world, world.initial).J)
    assert way == "random" or (gain > 0.01 if way == "toward" else gain < -0.01)


P, TO = (0.4, 0.3, 0.2, 0.1), ("wrong1", "right1", "wrong1", "right1")  # of the state `answer` of two_modes


@pytest.mark.parametrize(
    ("name", "broken", "message"),
    [
        ("answer", State("answer", (0.4, 0.3, 0.2, 0.2), TO), "sum to 1"),
        ("answer", State("answer", (0.5, 0.3, 0.2, 0.0), TO), "above 0"),
        ("answer", State("answer", P, ("wrong1",) * 4), "leads to right1"),
        ("answer", State("answer", P, ("wrong", *TO[1:])), "is no state"),
        ("answer", State("answer", (0.5, 0.3, 0.2), TO[:3]), "all V"),
        ("right1", State("right1", P, ("answer",) * 4), "come back"),
        ("right1", State("wrong1", P, (1.0,) * 4), "one name"),
    ],
)
def test_a_wrong_world_is_refused(name, broken, message):
    world = WORLDS["two_modes"]()
    with pytest.raises(TokenPOError, match=message):
        replace(world, states=tuple(broken if state.name == name else state for state in world.states))
