"""Rollout IS (SkyRL) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def rollout_is(mask, reward, group, logprob, rollout_logprob, *, low=0.2, high=0.2):
    alive = mask.any(1)

    # A_i = (R_i - mean_g) / (std_g + 1e-6); 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # sg[q 1(1 - low < q < 1 + high)] A lp
    q = np.exp(np.clip(logprob - rollout_logprob, -20, 20))
    weight = np.where((q > 1 - low) & (q < 1 + high), q, 0)

    share = mask / mask.sum()
    return -(share * weight * A * logprob).sum(), -share * weight * A
