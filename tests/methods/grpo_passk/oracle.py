"""GRPO pass@k (2503.19595) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def grpo_passk(mask, reward, group, old_logprob, logprob, *, std=True, low=0.2, high=0.2):
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # A of the best rollout = (R_(1) - R_(2)) / (std_g + 1e-6), std with G - 1: what the group's maximum owes to it.
    # Everybody else gets 0, and so does a tie; a rollout without others has nobody to beat
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = np.flatnonzero(alive & (group == g))
        if len(rows) > 1:
            best = max(rows, key=lambda i: reward[i])
            second = max(reward[i] for i in rows if i != best)
            if reward[best] > second:
                A[best, 0] = (reward[best] - second) / (reward[rows].std(ddof=1) + 1e-6 if std else 1)

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
