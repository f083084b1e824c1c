"""CISPO (2506.13585) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def cispo(mask, reward, group, old_logprob, logprob, *, low=1.0, high=0.28, absolute=False):
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # r_t = exp(lp - lp_old), the exponent kept within ±20
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))

    # sg[clip(r, 1 - low, 1 + high)] A lp: every token keeps a gradient, of bounded weight
    w = np.clip(r, 1 - low, high if absolute else 1 + high)
    J = w * A * logprob
    dJ = w * A

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
