"""Credit from a value, over every response of a world: which lambda is exact with which value."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

import tokenpo
from enumerated import enumerated
from tokenpo.core.parts import Gae, LengthLambda
from tokenpo.lab.exact.sampling import Walk, rollouts
from tokenpo.lab.exact.truth import slopes
from tokenpo.lab.exact.world import State, World
from tokenpo.lab.exact.worlds import WORLDS

OPEN = ["free_length", "two_modes", "lucky_guess"]  # responses of different lengths, forks, and rewards by luck


def _miss(world: World, credit: Gae, wrong: float = 0.0) -> float:
    """|E Σ_t A_t ∇lp_t − ∇J| / |∇J|, with the exact value and noise of this size on it, a number for each state."""
    every, logits = enumerated(world), world.initial.clone().requires_grad_()
    batch = Walk(every.states, every.tokens, every.mask, every.reward, torch.arange(len(every.reward)))
    facts = rollouts(world, batch, world.initial, frozenset({"value"}))
    noise = torch.randn(len(world.states), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    facts = dataclasses.replace(facts, value=facts.need("value") + wrong * noise[every.states])
    advantage = credit(facts, torch.zeros_like(facts.reward))
    taken: Tensor = logits.log_softmax(-1)[every.states, every.tokens] * every.mask
    chance = world.shares[every.prompt] * taken.detach().sum(1).exp()
    (expected,) = torch.autograd.grad((chance[:, None] * advantage * taken).sum(), logits)
    truth = slopes(world, logits)["J"]
    return float((expected - truth).norm() / truth.norm())


@pytest.mark.parametrize("name", OPEN)
@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
def test_with_the_exact_value_every_fixed_lambda_is_exact(name, lam):
    assert _miss(WORLDS[name](), Gae(lam=lam, whitened=False)) < 1e-12


@pytest.mark.parametrize("name", OPEN)
def test_with_a_wrong_value_only_lambda_one_is_exact(name):
    """And the further from one the worse."""
    misses = [_miss(WORLDS[name](), Gae(lam=lam, whitened=False), wrong=0.3) for lam in (1.0, 0.9, 0.5, 0.0)]
    assert misses[0] < 1e-12
    assert 3e-3 < misses[1] < misses[2] < misses[3]


def test_a_lambda_of_the_length_is_biased_even_with_the_exact_value():
    """Where the response ends is what later actions choose; where the first one alone does, there is no bias. A fixed
    lambda has none in either."""
    adaptive = Gae(lam=LengthLambda(1.0), whitened=False)
    assert 1e-3 < _miss(_world("end"), adaptive) < 0.5
    assert _miss(_world("late"), adaptive) < 1e-12
    assert _miss(_world("end"), Gae(lam=0.5, whitened=False)) < 1e-12


def _world(choice: str) -> World:
    """Its second token ends the response, for a reward in between, or (with "late") puts that off by a token."""
    states = (
        State("first", (0.5, 0.5), ("second", "third")),
        State("second", (0.4, 0.6), (0.5 if choice == "end" else "late", "third")),
        State("third", (0.7, 0.3), ("last", "last") if choice == "late" else (1.0, 0.0)),
        *([State("late", (0.5, 0.5), ("last", "last")), State("last", (0.5, 0.5), (1.0, 0.0))] * (choice == "late")),
    )
    return World("chosen length", "", None, "", states, {"first": 1.0})


def test_the_world_gives_the_value_that_a_perfect_critic_would():
    """The target of the critic, the return, explains on the whole as much as can be: its mean over responses is V."""
    world = WORLDS["lucky_guess"]()
    every = enumerated(world)
    batch = Walk(every.states, every.tokens, every.mask, every.reward, torch.arange(len(every.reward)))
    facts = rollouts(world, batch, world.initial, frozenset({"value"}))
    objective = tokenpo.method("ppo")
    credit = objective.prepare(facts)
    chance = facts.old_logprob.sum(1).exp() * world.shares[every.prompt]
    over = (credit.signals[objective.critic] - facts.need("value")) * chance[:, None] * facts.mask
    means = torch.zeros(len(world.states), dtype=torch.float64).index_add_(0, every.states.flatten(), over.flatten())
    torch.testing.assert_close(means, torch.zeros_like(means), rtol=0, atol=1e-14)
