"""GRPO pass@k (2503.19595): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, groups, ratio, token_mean

CASES = [{}, {"std": False}, {"low": 0.1, "high": 0.4}]


def grpo_passk(s, *, std=True, low=0.2, high=0.2):
    # A of the best rollout = (R_(1) - R_(2)) / (std_g + 1e-6), std with G - 1: what the group's maximum owes to it.
    # Everybody else gets 0, and so does a tie; a rollout without others has nobody to beat
    A = np.zeros((len(s.reward), 1))
    for rows in groups(s):
        R = s.reward[rows]
        if len(R) > 1:
            second, best = np.sort(R)[-2:]
            A[rows[R.argmax()], 0] = (best - second) / (R.std(ddof=1) + 1e-6 if std else 1)
    return token_mean(s, *clipped(*ratio(s), A, low, high))
