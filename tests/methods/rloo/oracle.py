"""RLOO (2402.14740): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, groups, ratio, token_mean

CASES = [{}, {"low": 0.1, "high": 0.4}]


def rloo(s, *, low=0.2, high=0.2):
    # A_i = R_i - mean of the other rollouts of the group; a rollout without others has nothing to be compared with
    A = np.zeros((len(s.reward), 1))
    for rows in groups(s):
        for i in rows if len(rows) > 1 else ():
            A[i, 0] = s.reward[i] - s.reward[rows[rows != i]].mean()
    return token_mean(s, *clipped(*ratio(s), A, low, high))
