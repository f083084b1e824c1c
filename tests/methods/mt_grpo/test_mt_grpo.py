"""MT-GRPO against its oracle, by hand, and at its reductions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tokenpo
from oracle_support import agrees, by_hand, close, holed, ragged, run
from tokenpo.core.parts import GroupAdvantage, TokenMean


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("options", [{}, {"coef": 0.3}, {"turn_rewards": 2}, {"beta": 0.1}])
def test_is_its_oracle(seed: int, options: dict) -> None:
    agrees("mt_grpo", ragged(seed, binary=seed == 0), **options)
    agrees("mt_grpo", holed(seed), **options)


def test_by_hand() -> None:
    """Two rollouts that call (turn reward 1 and 0, outcome 0 and 1) and one that answers at once (0, 0).

    Turn rewards 1, 0, 0: mean 1/3, std 1/sqrt(3): 2/sqrt(3), -1/sqrt(3), -1/sqrt(3); outcomes 0, 1, 0 likewise; their
    sums 1, 1, 0: mean 2/3, the last -2/3 sqrt(3) = -2/sqrt(3). First turns: 2 - 1 = 1 and -1 + 2 = 1, over sqrt(3).
    """
    sample = by_hand([[1, 1, 1], [1, 1], [1]], [1, 1, 0], [0, 0, 0])
    sample = sample.but(
        rewards=np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), turn=np.array([[0, 0, 1], [0, 1, 0], [0, 0, 0]])
    )
    advantage = run(tokenpo.method("mt_grpo"), sample).terms["advantage"]
    expected = np.array([1, 1, -1, 1, 2, -2]) / np.sqrt(3)
    np.testing.assert_allclose(advantage[sample.mask], expected, rtol=3e-4)


def test_a_single_turn_is_grpo_of_the_sum() -> None:
    sample = ragged(0).but(turn=np.zeros_like(ragged(0).turn))
    grpo = dataclasses.replace(tokenpo.method("grpo"), credit=GroupAdvantage(eps=1e-4), aggregate=TokenMean())
    close(run(tokenpo.method("mt_grpo"), sample), run(grpo, sample.but(reward=sample.rewards.sum(1))), rtol=1e-12)


def test_the_outcome_needs_a_reward_of_its_own() -> None:
    with pytest.raises(
        tokenpo.TokenPOError, match=r"^mt_grpo: the first 3 rewards judge the turn, and .* has 3 columns"
    ):
        run(tokenpo.method("mt_grpo", turn_rewards=3), ragged(0))


def test_obeys_the_laws() -> None:
    tokenpo.check_method(tokenpo.method("mt_grpo", coef=0.5, turn_rewards=2))
