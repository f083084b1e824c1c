"""LUSPO (2602.05261) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def luspo(mask, reward, group, old_logprob, logprob, *, low=0.2, high=0.2):
    length = mask.sum(1, keepdims=True)  # |o_i|
    alive = length[:, 0] > 0  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # s_i = exp(mean_t(lp - lp_old)), one ratio for the response
    s = np.exp((mask * (logprob - old_logprob)).sum(1, keepdims=True) / np.maximum(length, 1))

    # |o_i| min(s A, clip(s, 1 - low, 1 + high) A); with ∂s_i/∂lp_it = s_i / |o_i| the length leaves the gradient
    J = length * np.minimum(s * A, np.clip(s, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, s <= 1 + high, s >= 1 - low) * A * s

    # mean over the responses
    share = mask / alive.sum()
    return -J[alive].mean(), -share * dJ
