"""What shaping adds to a reward is reward, wherever right is not told from wrong by the reward itself."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import tokenpo
from tokenpo.core.trial import example
from tokenpo.methods import METHODS

# Their roles are those of the reward before shaping: by hand in test_polar.py, and topr's sign likewise.
BY_ROLE = {"gtpo", "grpo_s", "topr"}
# The reward is in their gain before shaping: by hand in core/parts/test_continuations.py.
BY_GAIN = {"vineppo", "spo"}


@pytest.mark.parametrize("name", sorted(METHODS.keys() - BY_ROLE - BY_GAIN))
def test_a_bonus_is_reward(name: str) -> None:
    objective, rollouts = tokenpo.method(name), tokenpo.Rollouts(**example(3).rollouts)
    draws = torch.rand(rollouts.reward.shape, generator=torch.Generator().manual_seed(0), dtype=rollouts.reward.dtype)
    apart = objective.credit(rollouts, 0.3 * draws)
    added = dataclasses.replace(rollouts, reward=rollouts.reward + 0.3 * draws)
    together = objective.credit(added, torch.zeros_like(draws))
    without = objective.credit(rollouts, torch.zeros_like(draws))
    shape = rollouts.mask.shape
    apart, together, without = (x.expand(shape)[rollouts.mask] for x in (apart, together, without))
    torch.testing.assert_close(apart, together, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(apart, without, rtol=1e-3)
