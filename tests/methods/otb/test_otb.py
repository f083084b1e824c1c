"""OTB by hand, and what is special about it."""

import numpy as np

from oracle_support import by_hand, outcome


def test_by_hand() -> None:
    """p_old = 1/4: w = 1 - 1/2 + Σp² = 1/2 + Σp². Rewards 1, 0, lengths 3, 2, Σp² = 1/4 and 1/2: w = 3/4 and 1, so that
    W = 3/4, 3/2, 9/4 and 1, 2. B = (3/4) / (3/4 + 1) = 3/7 at the first token, (3/2) / (7/2) = 3/7 at the second, and 0
    at the third, where the first response is alone: A = 4/7, 4/7, 1 and -3/7, -3/7.
    """
    collision = [[0.25, 0.25, 0.25], [0.5, 0.5]]
    sample = by_hand([[1, 1, 1], [1, 1]], [1, 0], old_collision=collision)
    advantage = outcome("otb", sample).terms["advantage"]
    np.testing.assert_allclose(advantage[sample.mask], np.array([4, 4, 7, -3, -3]) / 7, rtol=1e-7)
    kept = outcome("otb", sample, zero_tail=False).terms["advantage"]
    assert abs(kept[0, 2]) < 1e-7


def test_rewards_that_arrive_at_tokens_are_counted_from_there_on() -> None:
    """Rewards 1 then 2 against 0 then 0, W equal: G = 3, 2 against 0, 0: B = 3/2, 1."""
    sample = by_hand([[1, 1], [1, 1]], [3, 0], token_reward=[[1, 2], [0, 0]], old_collision=[[0.5, 0.5]] * 2)
    advantage = outcome("otb", sample, token_reward=True).terms["advantage"]
    np.testing.assert_allclose(advantage, [[1.5, 1], [-1.5, -1]], rtol=1e-7)


def test_one_token_and_equal_norms_are_dr_grpos_advantage() -> None:
    sample = by_hand([[1], [1], [1]], [1, 0, 0], old_collision=[[0.25]] * 3)
    ours, other = (outcome(name, sample).terms["advantage"] for name in ("otb", "dr_grpo"))
    np.testing.assert_allclose(ours, other, rtol=1e-7)


def test_a_sure_token_moves_no_baseline() -> None:
    """π = 1 and Σp² = 1: w = 0. The response that decides nothing has no part in the baseline of the other."""
    sample = by_hand([[1], [1]], [1, 0], p_old=1.0, old_collision=[[1.0], [1.0]])
    sample = sample.but(old_logprob=np.array([[0.0], [np.log(0.5)]]), old_collision=np.array([[1.0], [0.5]]))
    advantage = outcome("otb", sample).terms["advantage"]
    np.testing.assert_allclose(advantage, [[1], [0]], atol=1e-7)
