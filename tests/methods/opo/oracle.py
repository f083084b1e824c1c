"""OPO (2505.23585) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def opo(mask, reward, group, logprob):
    length = mask.sum(1, keepdims=True)  # |o_i|
    alive = length[:, 0] > 0  # a rollout without response tokens counts nowhere

    # A_i = R_i - Σ_j |o_j| R_j / Σ_j |o_j|: the baseline of least variance if a gradient's square grows with the length
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = R - (length[rows, 0] * R).sum() / length[rows, 0].sum()

    # A lp, without a ratio: exactly on-policy
    J = A * logprob
    dJ = A

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
