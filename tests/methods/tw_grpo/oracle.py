"""TW-GRPO (2505.24718) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def tw_grpo(mask, reward, group, old_logprob, logprob, divergence, *, alpha=1.7, low=0.2, high=0.28):
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-4), std with G - 1; 0 where a group's rewards are all equal.
    # w_t = 1 + (α - 1) (d_t - min d) / (max d - min d + 1e-8) over the positions where a rollout of the group is alive
    A, w = np.zeros((len(reward), 1)), np.ones(mask.shape)
    for g in np.unique(group[alive]):
        rows = np.flatnonzero(alive & (group == g))
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-4)
        d = {t: divergence[i, t] for i in rows for t in np.flatnonzero(mask[i])}
        least, most = min(d.values()), max(d.values())
        for t in d:
            w[rows, t] = 1 + (alpha - 1) * (d[t] - least) / (most - least + 1e-8)

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # w min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = w * np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = w * np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
