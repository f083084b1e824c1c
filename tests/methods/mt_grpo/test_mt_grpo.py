"""MT-GRPO by hand, and what is special about it."""

import dataclasses

import numpy as np
import pytest

import tokenpo
from oracle_support import by_hand, close, outcome, ragged, run
from tokenpo.core.parts import GroupAdvantage, TokenMean


def test_by_hand() -> None:
    """Two rollouts that call (turn reward 1 and 0, outcome 0 and 1) and one that answers at once (0, 0).

    Turn rewards 1, 0, 0: mean 1/3, std 1/sqrt(3): 2/sqrt(3), -1/sqrt(3), -1/sqrt(3); outcomes 0, 1, 0 likewise; their
    sums 1, 1, 0: mean 2/3, the last -2/3 sqrt(3) = -2/sqrt(3). First turns: 2 - 1 = 1 and -1 + 2 = 1, over sqrt(3).
    """
    sample = by_hand([[1, 1, 1], [1, 1], [1]], [1, 1, 0])
    sample = sample.but(
        rewards=np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), turn=np.array([[0, 0, 1], [0, 1, 0], [0, 0, 0]])
    )
    advantage = outcome("mt_grpo", sample).terms["advantage"]
    expected = np.array([1, 1, -1, 1, 2, -2]) / np.sqrt(3)
    np.testing.assert_allclose(advantage[sample.mask], expected, rtol=3e-4)


def test_a_single_turn_is_grpo_of_the_sum() -> None:
    sample = ragged(0).but(turn=np.zeros_like(ragged(0).turn))
    grpo = dataclasses.replace(tokenpo.method("grpo"), credit=GroupAdvantage(eps=1e-4), aggregate=TokenMean())
    close(outcome("mt_grpo", sample), run(grpo, sample.but(reward=sample.rewards.sum(1))), rtol=1e-12)


def test_there_are_as_many_rewards_as_judge_the_outcome() -> None:
    with pytest.raises(tokenpo.TokenPOError, match=r"^mt_grpo: the last 4 rewards judge the outcome, .* has 3 columns"):
        outcome("mt_grpo", ragged(0), outcome_rewards=4)
