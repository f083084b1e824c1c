"""Each world against its mean reward, length and decisions, worked out by hand.

The exact values against the sum over all responses.
"""

import math
from dataclasses import dataclass

import pytest
import torch

from enumerated import enumerated
from tokenpo.lab.exact.measures import divergence, drifted, gradient, truth
from tokenpo.lab.exact.worlds import WORLDS, World


@dataclass(frozen=True)
class Expected:
    """What a world is at its initial policy; lengths in tokens."""

    J: float
    length: float
    decides: set[str]


def endings(right: float) -> float:
    """Mean tokens of free_length: the first, and seven that each go on with 0.73 - 0.01 k, 0.005 less if wrong."""
    total = 1.0
    for share, less in ((right, 0.0), (1 - right, 0.005)):
        alive = share
        for k in range(1, 8):
            total += alive
            alive *= 0.73 - 0.01 * k - less
    return total


EXPECTED = {
    "fork_sure_filler": Expected(1 / 3, 6, {"fork"}),
    "sure_fork_filler": Expected(0.08, 6, {"fork"}),
    "wandering_fork": Expected(0.25, 5, {f"path{k}fork" for k in range(4)}),
    "wandering_sure": Expected(0.08, 5, {f"path{k}fork" for k in range(4)}),
    "rare_filler": Expected(0.42, 4, {"fork"}),
    "rare_right": Expected(0.05, 4, {"fork"}),
    "two_modes": Expected(0.4, 2, {"answer"}),
    "sparse_chain": Expected(1 / 81, 4, {f"fork{k}" for k in range(1, 5)}),
    "free_length": Expected(0.3, endings(0.3), {"answer"}),
    "forks_between_sure": Expected(0.5 * 0.48 * 0.46, 6, {"fork1", "fork2", "fork3"}),
    "easy_and_hard": Expected((0.9 + 0.07) / 2, 3, {"easy", "hard"}),
    # 0.3 responses of three tokens, 0.7 of two
    "lucky_guess": Expected(0.3 * 0.8 * 0.85 + 0.7 * 0.25, 2.3, {"start", "reason1", "reason2", "guess"}),
}


def deciding(world: World) -> torch.Tensor:
    """[S] bool, the states whose token changes the expected reward under the initial policy."""
    advantage = truth(world, world.initial).advantage
    return (advantage.max(-1).values - advantage.min(-1).values) > 1e-9


def faults(world: World) -> list[str]:
    """The properties in which a world is not as expected."""
    expected, at, chosen = EXPECTED[world.name], truth(world, world.initial), deciding(world)
    entropies = [round(-sum(p * math.log(p) for p in state.p), 9) for state in world.states]
    fillers = [h for h, yes in zip(entropies, chosen.tolist(), strict=True) if not yes]
    wrong = {
        "mean reward": abs(float(at.J) - expected.J) > 1e-12,
        "length": abs(float(at.visits.sum()) - expected.length) > 1e-11,
        "decisions": {s.name for s, yes in zip(world.states, chosen.tolist(), strict=True) if yes} != expected.decides,
        "two fillers are equally sure": len(set(fillers)) < len(fillers),
    }
    return [name for name, fault in wrong.items() if fault]


@pytest.mark.parametrize("name", WORLDS)
def test_is_as_expected(name):
    assert faults(WORLDS[name]()) == []


def moved(world: World) -> torch.Tensor:
    """A policy at which nothing is special."""
    draws = torch.Generator().manual_seed(1)
    return world.initial + torch.randn(world.initial.shape, dtype=torch.float64, generator=draws)


@pytest.mark.parametrize("name", WORLDS)
def test_is_the_sum_over_all_responses(name):
    world = WORLDS[name]()
    every, logits = enumerated(world), moved(world).requires_grad_()
    logp, at = logits.log_softmax(-1), truth(world, logits)
    taken = logp[every.states, every.tokens] * every.mask
    p = world.shares[every.prompt] * taken.sum(1).exp()
    mean = (p * every.reward).sum()
    assert world.length == int(every.mask.sum(1).max())
    assert 8 <= len(p) <= 2000 and float(p.sum().detach()) == pytest.approx(1, abs=1e-13)
    exact = gradient(world, logits)
    torch.testing.assert_close(at.J, mean, rtol=0, atol=1e-13)
    torch.testing.assert_close(at.visits.sum(), (p * every.mask.sum(1)).sum(), rtol=0, atol=1e-13)
    torch.testing.assert_close(exact, torch.autograd.grad(mean, logits, retain_graph=True)[0], rtol=0, atol=1e-13)
    # The policy gradient theorem: token credit Q - V gives the gradient of J.
    credit = at.advantage.detach()[every.states, every.tokens] * every.mask
    theorem = torch.autograd.grad((p.detach()[:, None] * credit * taken).sum(), logits)[0]
    torch.testing.assert_close(theorem, exact, rtol=0, atol=1e-13)


def test_drift():
    world = WORLDS["forks_between_sure"]()
    to = drifted(world)
    assert divergence(world, world.initial, to) == pytest.approx(0.01, rel=1e-9)
    assert float(truth(world, to).J - truth(world, world.initial).J) > 0.01
