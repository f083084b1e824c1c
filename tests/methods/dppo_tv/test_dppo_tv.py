"""DPPO with total variation by hand, and what is special about it."""

import numpy as np

from oracle_support import by_hand, moves, outcome


def test_by_hand() -> None:
    """Rewards 1, 0: A = ±a, a = 0.5 / (sqrt 0.5 + 1e-6). The sampler said 0.2 for every token; cap 1.5.

    Row 0: 0.34 is within 0.2 + 0.15, weight 1.7 capped at 1.5; 0.36 is not; 0.01 may fall: 0.05.
    Row 1: 0.06 is within 0.2 - 0.15, weight 0.3; 0.04 is not; 0.8 may rise, 4 capped at 1.5. Each is worth w A lp.
    """
    a = 0.5 / (np.sqrt(0.5) + 1e-6)
    sample = by_hand([[1.7, 1.8, 0.05], [0.3, 0.2, 4]], [1, 0], p_old=0.2)
    sample = sample.but(rollout_logprob=sample.old_logprob, old_logprob=sample.old_logprob - 1)  # not the anchor
    total = 1.5 * np.log(0.34) + 0.05 * np.log(0.01) - 0.3 * np.log(0.06) - 1.5 * np.log(0.8)
    moves("dppo_tv", sample, -total, [[-1.5, 0, -0.05], [0.3, 0, 1.5]], unit=a / 6, cap=1.5)


def test_at_the_threshold_a_token_is_inside() -> None:
    """From 1/4 to 1/2 the total variation is 1/4 exactly."""
    sample = by_hand([[2.0], [1.0]], [1, 0], p_old=0.25)
    for threshold, inside in ((0.25, True), (0.2499, False)):
        got = outcome("dppo_tv", sample, threshold=threshold, anchor="old")
        assert bool(got.gradient[0, 0]) is inside


def test_a_threshold_of_nothing_leaves_what_comes_back_and_what_has_not_moved() -> None:
    """Right responses at r = 1 and below, wrong ones at r = 1 and above, keep their gradient."""
    sample = by_hand([[1.0, 0.5, 2.0], [1.0, 0.5, 2.0]], [1, 0], p_old=0.25)
    got = outcome("dppo_tv", sample, threshold=0.0, anchor="old")
    np.testing.assert_array_equal(got.gradient != 0, [[True, True, False], [True, False, True]])
