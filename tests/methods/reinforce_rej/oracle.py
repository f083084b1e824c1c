"""Reinforce-Rej (2504.11343): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, groups, ratio, token_mean

CASES = [{}, {"low": 0.1, "high": 0.4}]


def reinforce_rej(s, *, low=0.2, high=0.2):
    # A = R, on the prompts that have both right and wrong answers; 0 on the others
    A = np.zeros((len(s.reward), 1))
    for rows in groups(s):
        A[rows, 0] = s.reward[rows] * (np.ptp(s.reward[rows]) > 0)
    return token_mean(s, *clipped(*ratio(s), A, low, high))
