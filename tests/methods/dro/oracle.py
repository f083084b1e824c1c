"""DRO (2405.19107) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def dro(mask, reward, group, old_logprob, logprob, *, beta=0.05):
    alive = mask.any(1)

    # A_i = (R_i - mean_g) / (std_g + 1e-6); 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # A lp - beta/2 (lp - lp_old)^2
    x = np.clip(logprob - old_logprob, -20, 20)
    share = mask / mask.sum()
    return -(share * (A * logprob - beta / 2 * x**2)).sum(), -share * (A - beta * x)
