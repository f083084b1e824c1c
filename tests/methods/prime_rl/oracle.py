"""prime-rl's default loss as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def prime_rl(mask, reward, group, logprob, rollout_logprob, *, low=0.2, high=0.2, kl=1e-3):
    alive = mask.any(1)

    # A_i = R_i - mean_g; 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = R - R.mean()

    # keep q A - kl (log q)^2
    moved = np.exp(logprob) - np.exp(rollout_logprob)
    keep = np.where(A > 0, moved <= high, moved >= -low)
    x = np.clip(logprob - rollout_logprob, -20, 20)
    q = np.exp(x)
    J = keep * q * A - kl * x**2
    dJ = keep * q * A - 2 * kl * x

    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
