"""OPO (2505.23585): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import groups, likelihood, token_mean

CASES = [{}]


def opo(s):
    # A_i = R_i - Σ_j |o_j| R_j / Σ_j |o_j|: the baseline of least variance if a gradient's square grows with the length
    A = np.zeros((len(s.reward), 1))
    for rows in groups(s):
        R = s.reward[rows]
        if R.min() < R.max():
            A[rows, 0] = R - np.average(R, weights=s.mask[rows].sum(1))

    # A lp, without a ratio: exactly on-policy
    return token_mean(s, *likelihood(s, A))
