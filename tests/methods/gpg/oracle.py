"""GPG (2504.02546): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import group_advantage, groups, likelihood, token_mean
from oracle_support.prelude import sequence_mean as response_mean

CASES = [{}, {"sequence_mean": True}]


def gpg(s, *, sequence_mean=False):
    # A_i = B / (B - M) (R_i - mean_g): M of the B rollouts are in groups whose rewards are all equal
    B = s.mask.any(1).sum()
    M = sum(len(rows) for rows in groups(s) if np.ptp(s.reward[rows]) == 0)
    A = B / max(B - M, 1) * group_advantage(s, std=False)

    # A lp, without a ratio; the authors' code for vision takes the mean of a response first
    return (response_mean if sequence_mean else token_mean)(s, *likelihood(s, A))
