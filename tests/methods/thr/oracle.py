"""THR (2510.03669): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import clipped, group_advantage, groups, ratio, sequence_mean

CASES = [{}, {"p": -0.5}, {"p": 0.0}, {"mask": False}, {"p": 0.9, "mask": False}, {"low": 0.1, "high": 0.4}]


def thr(s, *, p=0.1, mask=True, low=0.2, high=0.2):
    # A_it <- A_it 1[|THR| > τ] (1 + p sign THR), THR = +s on the tokens of the correct rollouts (R > mean_g), else -s;
    # τ = min_i sbar_i, sbar_i the mean influence s of a correct rollout's tokens
    A = group_advantage(s) + np.zeros(s.mask.shape)
    for rows in groups(s):
        correct = rows[A[rows].max(1) > 0]
        if len(correct):
            tau = min(s.influence[i, s.mask[i]].mean() for i in correct)
            THR = np.where(np.isin(rows, correct)[:, None], 1, -1) * s.influence[rows]
            A[rows] *= (1 + p * np.sign(THR)) * (np.abs(THR) > tau if mask else 1)
    return sequence_mean(s, *clipped(*ratio(s), A, low, high))
