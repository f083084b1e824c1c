"""GDPO by hand, and what is special about it."""

import dataclasses

import numpy as np
import pytest

import tokenpo
from oracle_support import Sample, agrees, by_hand, outcome, ragged, run
from tokenpo.core.parts import SoftOverlong

FORMS = ("trl", "verl", "nemo_rl")


def _some_missing(seed: int) -> Sample:
    """A reward that does not apply to every rollout, and a rollout that none applies to."""
    sample = ragged(seed)
    rewards = sample.rewards.copy()
    rewards[::5, 1], rewards[3] = np.nan, np.nan
    return sample.but(rewards=rewards)


@pytest.mark.parametrize("form", FORMS)
def test_a_reward_that_does_not_apply_to_every_rollout_is_as_in_the_oracle(form: str) -> None:
    for options in ({}, {"weights": (1.0, 0.5, -2.0)}):
        agrees("gdpo", _some_missing(0), form=form, **options)


# One group of three, rewards (1, 0), (0, 0), (0, 2); lengths 1, 1, 2.
THREE = by_hand([[1], [1], [1, 1]], [1, 0, 2]).but(rewards=np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 2.0]]))


def test_by_hand() -> None:
    """First reward: mean 1/3, deviations 2/3, -1/3, -1/3, std sqrt(6/9 / 2) = 1/sqrt(3). Second: twice as much the
    other way round, so the same numbers: u = sqrt(3) (1/3, -2/3, 1/3) but for eps. Over the responses: mean 0, std
    sqrt(3) sqrt(6/9 / 2) = 1; over the four tokens below.
    """
    got = {form: outcome("gdpo", THREE, form=form).terms["advantage"][:, 0] for form in FORMS}
    root = np.sqrt(3)
    np.testing.assert_allclose(got["trl"], root * np.array([1, -2, 1]) / 3, rtol=1e-3)
    u = root * np.array([1, -2, 1, 1]) / 3  # a token each
    np.testing.assert_allclose(got["verl"], ((u - u.mean()) / u.std(ddof=1))[:3], rtol=1e-5)
    # With s = 1/sqrt(2). Others of (1, 0, 0): (0, 0), mean 0, std 0, not divided: 1; (1, 0): mean 1/2, std s: -s, -s.
    # Second reward: 0 against (0, 2): mean 1, std sqrt(2): -s; -s; 2 against (0, 0): 2. u = 1 - s, -2 s, 2 - s: mean
    # 1 - 4/3 s, so deviations s/3, -1 - 2/3 s, 1 + s/3, whose squares add up to 1/3 + 2 + 2 s.
    s = np.sqrt(0.5)
    u = np.array([s / 3, -1 - 2 * s / 3, 1 + s / 3])
    np.testing.assert_allclose(got["nemo_rl"], u / np.sqrt((7 / 3 + 2 * s) / 2), rtol=1e-5)


def test_equal_rewards_are_moved_by_the_mean_of_the_batch_over_tokens() -> None:
    """Group 0: rewards 1, 0 of lengths 1, 3; group 1: equal rewards. Over responses the mean of u is 0, over tokens it
    is not, and the second group has an advantage."""
    sample = by_hand([[1], [1, 1, 1], [1], [1]], [1, 0, 1, 1], [0, 0, 1, 1])
    over_responses, over_tokens = (outcome("gdpo", sample, form=f).terms["advantage"] for f in FORMS[:2])
    assert not over_responses[2:].any()
    assert (over_tokens[2:, 0] > 0.1).all()


def test_one_reward_on_the_scale_of_another_counts_as_much() -> None:
    """Multiplied by 100, a reward changes nothing; a sum of rewards would follow it."""
    sample = ragged(1)
    scaled = sample.but(rewards=sample.rewards * [1, 100, 1])
    ours = [outcome("gdpo", one, form="verl").terms["advantage"] for one in (sample, scaled)]
    np.testing.assert_allclose(ours[0], ours[1], rtol=1e-4, atol=1e-4)


def test_weights_are_one_for_each_reward() -> None:
    with pytest.raises(tokenpo.TokenPOError, match=r"^gdpo: 2 weights for the 3 columns of Rollouts.rewards: give one"):
        outcome("gdpo", ragged(0), weights=(1.0, 2.0))
    with pytest.raises(tokenpo.TokenPOError, match="gdpo: weights is 2, expected a list of finite numbers"):
        tokenpo.method("gdpo", weights=2)


def test_shaping_is_one_more_reward() -> None:
    """A bonus that only tells lengths apart moves those whose rewards are equal."""
    plain, sample = tokenpo.method("gdpo"), by_hand([[1], [1, 1]], [1, 1])
    shaped = dataclasses.replace(plain, shaping=(SoftOverlong(2, 1),))
    assert not run(plain, sample).terms["advantage"].any()
    advantage = run(shaped, sample).terms["advantage"]
    assert advantage[0, 0] > 0 > advantage[1, 0]
