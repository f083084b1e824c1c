"""Rewards that arrive on the way, and how many there are is a choice: `ask_or_answer`."""

from __future__ import annotations

import pytest
import torch

import tokenpo
from enumerated import enumerated
from tokenpo.lab.exact import measures
from tokenpo.lab.exact.contestant import Contestant
from tokenpo.lab.exact.model import Table
from tokenpo.lab.exact.sampling import rollouts, walk
from tokenpo.lab.exact.truth import slopes, truth
from tokenpo.lab.exact.worlds import TURNS

WORLD = TURNS["ask_or_answer"]()


def test_the_truth_is_the_sum_over_all_responses():
    """J = 0.3 (0.1 + 0.3) + 0.5 = 0.62; asking is worth 0.4 - 0.62."""
    every, logits = enumerated(WORLD), WORLD.initial.clone().requires_grad_()
    taken = logits.log_softmax(-1)[every.states, every.tokens] * every.mask
    J = (taken.sum(1).exp() * every.reward).sum()
    assert float(J.detach()) == pytest.approx(0.62, abs=1e-14)
    assert float(truth(WORLD, WORLD.initial).advantage[0, 0]) == pytest.approx(-0.22, abs=1e-14)
    torch.testing.assert_close(slopes(WORLD, WORLD.initial)["J"], torch.autograd.grad(J, logits)[0], rtol=0, atol=1e-15)


def test_rewards_of_turns_are_told_from_the_outcome():
    walked = walk(WORLD, WORLD.initial, 8, 8, torch.Generator().manual_seed(0), even=True)
    facts = rollouts(WORLD, walked, WORLD.initial, frozenset({"rewards", "token_reward", "baseline"}))
    asked = walked.tokens[:, 0] == 0
    assert asked.any() and not asked.all()
    torch.testing.assert_close(facts.need("rewards")[:, 0], 0.1 * asked.double())
    torch.testing.assert_close(facts.need("rewards").sum(1), facts.reward)
    torch.testing.assert_close(facts.need("token_reward").sum(1), facts.reward)
    assert (facts.need("baseline") == 1).all()  # the likeliest token answers, right


@pytest.mark.parametrize(
    ("name", "options", "cosine", "asks"),
    [
        ("mt_grpo", {}, 0.74, True), ("mt_grpo", {"norm": "joint"}, 1, False), ("gdpo", {}, 0.49, True),
        ("dr_grpo", {}, 1, False), ("remax", {}, 1, False), ("rae", {}, 1, False), ("gigpo", {}, 1, False),
    ],
)  # fmt: skip
def test_scales_of_their_own_teach_to_ask(name, options, cosine, asks):
    """Of docs/exact.md. A reward that only those who ask get weighs as much as the outcome once it is normalised."""
    result = measures.observe(Contestant(name, tokenpo.method(name, **options)), Table(WORLD), "init")
    assert measures.cosine(result).value == pytest.approx(cosine, abs=5e-3)
    assert (result.whole.mean(0)[0] > 0) == asks
