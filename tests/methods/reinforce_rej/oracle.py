"""Reinforce-Rej (2504.11343) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def reinforce_rej(mask, reward, group, old_logprob, logprob, *, low=0.2, high=0.2):
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # A = R, on the prompts that have both right and wrong answers; 0 on the others
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        if reward[rows].min() < reward[rows].max():
            A[rows, 0] = reward[rows]

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
