"""Continuations in exact worlds: they tell the truth, are shared by prefixes, counted, and leave updates unbiased."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import tokenpo
from tokenpo.core.parts import Continuations, EqualEntropy, EveryTokens, SegmentGain
from tokenpo.core.seeds import keyed_generator
from tokenpo.lab.exact.contestant import Contestant, continued
from tokenpo.lab.exact.measures import cosine, observe
from tokenpo.lab.exact.model import Table
from tokenpo.lab.exact.sampling import Walk, rollouts, walk
from tokenpo.lab.exact.truth import truth
from tokenpo.lab.exact.worlds import WORLDS


def test_with_many_continuations_the_gain_of_a_token_is_its_advantage():
    """20,000 a cut: two means of rewards in [0, 1] differ from their values by at most 0.5 / sqrt(20,000) = 0.0035
    each; 0.025 is five deviations of the difference. Behind the last token the reward itself stands."""
    world = WORLDS["lucky_guess"]()
    logits = world.initial
    walked = walk(world, logits, 2, 4, keyed_generator(0, "test"), even=False)
    facts = rollouts(world, walked, logits, frozenset())
    result = continued(world, walked, logits, facts, Continuations(EveryTokens(1), 20_000)).facts.need("gain")
    exact = truth(world, logits).advantage[walked.states, walked.tokens]
    assert (result - exact)[walked.mask].abs().max() < 0.025
    assert exact[walked.mask].abs().max() > 0.2


def test_shared_prefixes_are_drawn_from_once_and_every_token_is_counted():
    """Two responses of one group of `two_modes`, three of another: [1, 0], [1, 2]; [1, 0], [3, 0], [3, 0]. All
    have two tokens, so a continuation takes two from the start and one from behind a token. Distinct prefixes:
    two starts, [1] of the first group, [1] and [3] of the second: 5 continuations of each are 5 · (2 + 2 + 1 +
    1 + 1) = 35 tokens."""
    world = WORLDS["two_modes"]()
    tokens = torch.tensor([[1, 0], [1, 2], [1, 0], [3, 0], [3, 0]])
    states = torch.stack([torch.zeros(5, dtype=torch.long), world.next[0][tokens[:, 0]]], 1)
    walked = Walk(states, tokens, torch.ones(5, 2, dtype=torch.bool), torch.ones(5), torch.tensor([0, 0, 1, 1, 1]))
    facts = rollouts(world, walked, world.initial, frozenset())
    got = continued(world, walked, world.initial, facts, Continuations(EveryTokens(1), 5))
    assert got.tokens == 35
    assert torch.equal(got.facts.need("gain")[3], got.facts.need("gain")[4])
    again = continued(world, walked, world.initial, facts, Continuations(EveryTokens(1), 5))
    assert torch.equal(got.facts.need("gain"), again.facts.need("gain"))


def test_no_cut_costs_nothing():
    """Groups of equal rewards, where only mixed ones are continued."""
    world = WORLDS["two_modes"]()
    walked = walk(world, world.initial, 2, 4, keyed_generator(0, "test"), even=False)
    walked = dataclasses.replace(walked, reward=torch.ones(8, dtype=torch.float64))
    facts = rollouts(world, walked, world.initial, frozenset())
    got = continued(world, walked, world.initial, facts, Continuations(EveryTokens(1), 5, mixed=True, start=True))
    assert got.tokens == 0
    assert not got.facts.need("gain").any()


@pytest.mark.parametrize("plan", [
    Continuations(EveryTokens(2), 2),
    Continuations(EqualEntropy(1), 1, mixed=True, start=True, own=True, lean=1.0),
])  # fmt: skip
def test_one_or_two_continuations_leave_the_update_unbiased(plan):
    """The expected update points along the true gradient: its cosine is 1 within four standard errors."""
    objective = dataclasses.replace(tokenpo.method("rloo"), name="bought", credit=SegmentGain(plan))
    result = cosine(observe(Contestant("bought", objective), Table(WORLDS["forks_between_sure"]()), "init"))
    assert abs(1 - result.value) < max(4 * result.error, 0.002)
