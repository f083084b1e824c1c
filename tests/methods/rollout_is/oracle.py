"""Rollout IS (SkyRL): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import group_advantage, likelihood, ratio, token_mean

CASES = [{}, {"low": 0.5, "high": 3.0}, {"low": 1.0, "high": np.inf}]


def rollout_is(s, *, low=0.2, high=0.2):
    # sg[q 1(1 - low < q < 1 + high)] A lp, q = π / π_rollout
    q, _ = ratio(s, s.rollout_logprob)
    return token_mean(s, *likelihood(s, np.where((q > 1 - low) & (q < 1 + high), q, 0) * group_advantage(s)))
