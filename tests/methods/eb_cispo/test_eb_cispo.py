"""EB-CISPO by hand, and what is special about it."""

import numpy as np
import pytest

from oracle_support import by_hand, outcome


def test_by_hand() -> None:
    """Groups (1, 1, 0) and (0, 0, 0), one token each: within (2/9·3)/4 = 1/6. Means 2/3 and 0: variance 2/9; between
    2/9 - 1/18 = 1/6: kappa 1, so V = (2 mates + 1 rest)/3. The rest is 0 for the first group, 2/3 for the second.

    First group: V = 2·(1/2)/3 = 1/3 for a right one, A 2/3; V = 2/3 for the wrong one. Second: V = 2/9.
    Deviation of the batch: mean 1/3, squares 2·4/9 + 4·1/9 = 4/3, over 5: sqrt(4/15). Ratios 1.1, 4 (capped at 3), 1.
    """
    scale = (4 / 15) ** 0.5 + 1e-6
    sample = by_hand([[1.1], [4.0], [1.0], [1.0], [1.0], [1.0]], [1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1])
    got = outcome("eb_cispo", sample)
    credit = np.array([[2 / 3], [2 / 3], [-2 / 3], [-2 / 9], [-2 / 9], [-2 / 9]]) / scale
    np.testing.assert_allclose(got.terms["advantage"], credit, rtol=1e-12)
    np.testing.assert_allclose(got.gradient, -credit * [[1.1], [3], [1], [1], [1], [1]] / 6, rtol=1e-12)


def test_prompts_that_do_not_differ_share_their_mean() -> None:
    """Groups (1, 0) and (0, 1): no variance between means, so that V is the mean 1/2 of the other group; s² = 1/3."""
    got = outcome("eb_cispo", by_hand([[1.0]] * 4, [1, 0, 0, 1], [0, 0, 1, 1]))
    credit = 0.5 / ((1 / 3) ** 0.5 + 1e-6)
    np.testing.assert_allclose(got.terms["advantage"][:, 0], [credit, -credit, -credit, credit], rtol=1e-12)


def test_prompts_that_differ_beyond_noise_are_apart() -> None:
    """Groups (1, 1) and (0, 0): nothing varies within, kappa = 0, and nobody did better than his mates: exactly 0."""
    got = outcome("eb_cispo", by_hand([[1.0]] * 4, [1, 1, 0, 0], [0, 0, 1, 1]))
    assert not got.terms["advantage"].any()
    assert not got.gradient.any()


def test_a_lone_response_is_compared_with_the_other_prompts() -> None:
    """Groups (1, 1), (0, 0) and (1): kappa = 0, and 1 less the mean 1/2 of the others; s² of five rewards is 3/10."""
    got = outcome("eb_cispo", by_hand([[1.0]] * 5, [1, 1, 0, 0, 1], [0, 0, 1, 1, 2]))
    np.testing.assert_allclose(got.terms["advantage"][:, 0], [0, 0, 0, 0, 0.5 / (0.3**0.5 + 1e-6)], rtol=1e-12)


def test_one_prompt_is_rloo_over_the_deviation() -> None:
    sample = by_hand([[1.0], [1.0], [1.0]], [3, 1, 2])
    ours, rloo = outcome("eb_cispo", sample), outcome("rloo", sample)
    np.testing.assert_allclose(ours.gradient * (1 + 1e-6), rloo.gradient, rtol=1e-12)


@pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e8 / 3, -0.7])
def test_equal_rewards_teach_nothing(reward: float) -> None:
    got = outcome("eb_cispo", by_hand([[1.0]] * 7, [reward] * 7, [0, 0, 0, 1, 1, 1, 2]))
    assert not got.terms["advantage"].any()
