"""KL-Cov (2505.22617) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def kl_cov(mask, reward, group, old_logprob, logprob, *, fraction=2e-3, coef=1.0):
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # cov_t = (A_t - mean A)(lp_t - mean lp), the means over all tokens of the batch
    A = A + np.zeros(mask.shape)
    cov = (A - A[mask].mean()) * (logprob - logprob[mask].mean())

    # the k tokens of largest covariance
    k = max(1, int(fraction * mask.sum()))
    top = np.zeros_like(mask)
    top.flat[np.argsort(np.where(mask, -cov, np.inf), axis=None, kind="stable")[:k]] = True

    # r A without any clip, and - coef |lp - lp_old| on the top k
    x = logprob - old_logprob
    J = np.exp(x) * A - coef * top * np.abs(x)
    dJ = np.exp(x) * A - coef * top * np.sign(x) * (np.abs(x) > 1e-5)  # flat where x is rounding

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
