"""ARM (ProGRPO, 2602.05281) as one straight line: loss and hand-derived gradient, NumPy float64."""

from math import ceil

import numpy as np


def arm(
    mask, reward, group, old_logprob, logprob, prompt_logprob,
    *, alpha=0.1, fraction=0.2, only_correct=False, low=0.2, high=0.28,
):  # fmt: skip
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6) + α (c(q) - c(o_i)), std with G - 1; 0 where a group's rewards are all equal
    # c(q) = exp(mean log-probability of the prompt's tokens); c(o) = that of the response's least likely `fraction`
    A = np.zeros((len(reward), 1))
    for i in np.flatnonzero(alive):
        R = reward[alive & (group == group[i])]
        if R.min() == R.max():
            continue
        A[i, 0] = (reward[i] - R.mean()) / (R.std(ddof=1) + 1e-6)
        if only_correct and not reward[i] > R.mean():
            continue
        ranked = sorted(old_logprob[i, mask[i]])
        least = ranked[: max(1, ceil(fraction * len(ranked)))]
        A[i, 0] += alpha * (np.exp(prompt_logprob[i]) - np.exp(sum(least) / len(least)))

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
