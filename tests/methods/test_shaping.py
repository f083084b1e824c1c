"""What shaping adds to a reward is reward, wherever right is not told from wrong by the reward itself."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import tokenpo
from tokenpo.core.trial import example
from tokenpo.methods import METHODS

# Their roles are those of the reward before shaping: by hand in test_laws.py, and topr's sign likewise. A small bonus
# changes no label of real: by hand in its own file.
BY_ROLE = {"gtpo", "grpo_s", "topr", "real"}
# The reward is in their gain before shaping: by hand in core/parts/test_credit.py.
BY_GAIN = {"vineppo", "spo"}
# They read no reward.
TAUGHT = {"opd", "gkd", "sdpo"}


def _earned(name: str, rollouts: tokenpo.Rollouts, bonus: torch.Tensor) -> tokenpo.Rollouts:
    """The rollouts that earned so much more, where the method looks for it: one more reward, the outcome, the end."""
    each, arriving = rollouts.need("rewards"), rollouts.need("token_reward").clone()
    last = rollouts.mask.sum(1) - 1
    arriving[torch.arange(len(last)), last] += bonus
    changed = {
        "gdpo": {"rewards": torch.cat([each, bonus[:, None]], 1)},
        "mt_grpo": {"rewards": torch.cat([each[:, :-1], each[:, -1:] + bonus[:, None]], 1)},
    }
    usual = {"reward": rollouts.reward + bonus, "token_reward": arriving}
    return dataclasses.replace(rollouts, **changed.get(name, usual))


@pytest.mark.parametrize("name", sorted(METHODS.keys() - BY_ROLE - BY_GAIN - TAUGHT))
def test_a_bonus_is_reward(name: str) -> None:
    objective, rollouts = tokenpo.method(name), tokenpo.Rollouts(**example(3).rollouts)
    draws = torch.rand(rollouts.reward.shape, generator=torch.Generator().manual_seed(0), dtype=rollouts.reward.dtype)
    apart = objective.credit(rollouts, 0.3 * draws)
    added = _earned(name, rollouts, 0.3 * draws)
    together = objective.credit(added, torch.zeros_like(draws))
    without = objective.credit(rollouts, torch.zeros_like(draws))
    shape = rollouts.mask.shape
    apart, together, without = (x.expand(shape)[rollouts.mask] for x in (apart, together, without))
    torch.testing.assert_close(apart, together, rtol=1e-12, atol=1e-14)
    assert not torch.allclose(apart, without, rtol=1e-3)
