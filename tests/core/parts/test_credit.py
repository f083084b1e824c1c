"""GroupAdvantage by hand, and exact zeros where nothing can be learnt."""

from __future__ import annotations

import pytest
import torch

import tokenpo
from timing import peak_bytes
from tokenpo.core.parts import GroupAdvantage


def _advantage(stage: GroupAdvantage, rollouts, bonus: list[float] | None = None) -> list[float]:
    extra = torch.zeros_like(rollouts.reward) if bonus is None else torch.tensor(bonus, dtype=rollouts.reward.dtype)
    seen = stage(rollouts, extra)
    assert seen.shape == rollouts.mask.shape
    assert (seen == seen[:, :1]).all()
    return seen[:, 0].tolist()


def test_by_hand(rollouts) -> None:
    """Rewards 1, 0, 0, 0 of group 8: mean 1/4, squares 9/16 + 3/16 = 3/4, ddof 1: sqrt(1/4) = 1/2.

    Advantages 3/4 and -1/4 over 1/2 + 1e-6. Group 5 (3 and 1): mean 2, deviation sqrt(2), ±1.
    """
    facts = rollouts([2, 1, 3, 1, 2, 2], [1, 3, 0, 0, 1, 0], [8, 5, 8, 8, 5, 8])
    half, root = 0.5 + 1e-6, 2**0.5 + 1e-6
    expected = [0.75 / half, 1 / root, -0.25 / half, -0.25 / half, -1 / root, -0.25 / half]
    assert _advantage(GroupAdvantage(), facts) == pytest.approx(expected, rel=1e-14)


def test_the_bonus_is_part_of_the_reward(rollouts) -> None:
    """Rewards 1 and 1 with bonus 0 and -1: as 1 and 0."""
    facts = rollouts([1, 1], [1, 1], [0, 0])
    assert _advantage(GroupAdvantage(std=False), facts, [0, -1]) == [0.5, -0.5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("stage", [GroupAdvantage(), GroupAdvantage(std=False), GroupAdvantage(eps=0.0)])
@pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e8 / 3, -0.7])
def test_equal_rewards_give_exactly_zero(rollouts, dtype: torch.dtype, stage: GroupAdvantage, reward: float) -> None:
    """Seven times 0.1 does not average to 0.1 in floating point; the advantage is 0 all the same, and not 0 / 0."""
    facts = rollouts([2] * 7, [reward] * 7, [3] * 7, dtype)
    assert _advantage(stage, facts) == [0.0] * 7


def test_rows_without_tokens_are_in_no_group(rollouts) -> None:
    """Row 2 has reward 100 but no token: the group is 1 and 0, mean 1/2, deviation sqrt(1/2). It gets 0 itself."""
    a = 0.5 / (0.5**0.5 + 1e-6)
    seen = _advantage(GroupAdvantage(), rollouts([1, 2, 0], [1, 0, 100], [4, 4, 4]))
    assert seen == pytest.approx([a, -a, 0], rel=1e-14)


def _in_groups(rows: int, size: int) -> tokenpo.Rollouts:
    """Groups of right and wrong responses of 64 tokens at most, in no order."""
    g = torch.Generator().manual_seed(1)
    mask = torch.arange(64) < torch.randint(1, 65, (rows, 1), generator=g)
    reward = (torch.rand(rows, generator=g) < 0.5).float()
    group = 7 * (torch.arange(rows) // size)[torch.randperm(rows, generator=g)]
    tables = -torch.rand(2, rows, 64, generator=g)
    return tokenpo.Rollouts(mask, reward, group, tables[0], old_entropy=-tables[1])


@pytest.mark.parametrize("size", [1, 3, 5, 24])  # by five, the last group has four
def test_by_group_is_the_same_at_once(size: int) -> None:
    rollouts = _in_groups(24, size)
    stage, bonus = tokenpo.method("gtpo").credit, torch.zeros(24)
    seen = stage(rollouts, bonus)
    assert torch.equal(seen, stage.of(rollouts, bonus).to(seen.dtype))
    assert seen.any() or size == 1


def test_memory_by_group() -> None:
    """Held at once are the credit, what masks it, and one group's tensors: at once gtpo makes more than ten."""
    rollouts = _in_groups(512, 8)
    size = 4 * rollouts.mask.numel()
    assert peak_bytes(lambda: tokenpo.method("gtpo", scope="batch").prepare(rollouts)) / size > 10
    assert peak_bytes(lambda: tokenpo.method("gtpo").prepare(rollouts)) / size < 4
