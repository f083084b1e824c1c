"""GTPO's and GRPO-S's rewards with a bonus from shaping, by hand: entropies are equal, so shares are even."""

from __future__ import annotations

import statistics

import pytest
import torch

import tokenpo
from tokenpo.methods.gtpo import PolarSequences, PolarTokens

EPS = 1e-6
# One token each: right, right, wrong of group 6. r = 1 + 0.1 · 2 · 1/2 = 1.1 for the right, -1.1 for the wrong; the
# bonuses -0.5, 0 and 0.2 make them 0.6, 1.1 and -0.9.
BONUS = torch.tensor([-0.5, 0.0, 0.2], dtype=torch.float64)
SHAPED = [0.6, 1.1, -0.9]


def _normalised(values: list[float], collection: list[float]) -> list[float]:
    return [(x - statistics.mean(collection)) / (statistics.stdev(collection) + EPS) for x in values]


@pytest.mark.parametrize(
    ("collection", "expected"),
    [
        ("with_zeros", _normalised([0.6, 1.1], [0.6, 1.1, 0]) + _normalised([-0.9], [0, 0, -0.9])),
        ("own_set", [*_normalised([0.6, 1.1], [0.6, 1.1]), 0.0]),  # alone in its set: no deviation
        ("pooled", _normalised(SHAPED, SHAPED)),
    ],
)
def test_the_bonus_is_part_of_the_token_reward(rollouts, collection: str, expected: list[float]) -> None:
    seen = PolarTokens(1.0, 0.1, collection)(rollouts([1, 1, 1], [1, 1, 0], [6, 6, 6]), BONUS)
    assert seen[:, 0].tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("geometric", [False, True])
def test_the_bonus_is_part_of_the_sequence_reward(rollouts, geometric: bool) -> None:
    seen = PolarSequences(1.0, 0.1, geometric)(rollouts([1, 1, 1], [1, 1, 0], [6, 6, 6]), BONUS)
    assert seen[:, 0].tolist() == pytest.approx(_normalised(SHAPED, SHAPED), rel=1e-12)


@pytest.mark.parametrize("name", ["gtpo", "grpo_s"])
def test_the_group_relative_penalty_reaches_the_advantage(rollouts, name: str) -> None:
    """Lengths 1 and 3 right, 2 wrong: L⁺ = 2, the long one pays a quarter. Bonuses 0, -1/4, 0."""
    facts = rollouts([1, 3, 2], [1, 1, 0], [6, 6, 6])
    objective = tokenpo.method(name, group_overlong=True)
    bonus = torch.tensor([0, -0.25, 0], dtype=torch.float64)
    expected = torch.where(facts.mask, objective.credit(facts, bonus), 0)
    seen = objective.prepare(facts).advantage
    assert torch.equal(seen, expected)
    assert seen[1, 0] < seen[0, 0]


def test_equal_entropies_share_equally_in_single_precision_too() -> None:
    """Six right rollouts with H = 0.3 each: every share is 6 · 0.3 / 1.8 = 1, as at H = 0.5, so A is exactly 0.

    In float32 the sum of six 0.3 is rounded and the share is 1.0000001; divided by eps that would be an advantage.
    """
    rollouts = tokenpo.Rollouts(
        mask=torch.ones(7, 2, dtype=torch.bool),
        reward=torch.tensor([1.0] * 6 + [0.0]),
        group=torch.zeros(7, dtype=torch.long),
        old_logprob=torch.zeros(7, 2),
        old_entropy=torch.tensor([[0.3, 0.5]] * 7),
    )
    advantage = tokenpo.method("gtpo", normalise="own_set", a1=0.0, a2=1.0).prepare(rollouts).advantage
    assert not advantage[:6].any()
