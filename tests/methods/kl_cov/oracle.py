"""KL-Cov (2505.22617): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import group_advantage, token_mean

CASES = [{}, {"fraction": 0.1}, {"fraction": 0.5, "coef": 0.3}, {"fraction": 1.0, "coef": 2.0}]


def kl_cov(s, *, fraction=2e-3, coef=1.0):
    # cov_t = (A_t - mean A)(lp_t - mean lp), the means over all tokens of the batch
    A = group_advantage(s) + np.zeros(s.mask.shape)
    cov = (A - A[s.mask].mean()) * (s.logprob - s.logprob[s.mask].mean())

    # the k tokens of largest covariance
    k = max(1, int(fraction * s.mask.sum()))
    top = np.zeros_like(s.mask)
    top.flat[np.argsort(np.where(s.mask, -cov, np.inf), axis=None, kind="stable")[:k]] = True

    # r A without any clip, and - coef |lp - lp_old| on the top k, flat where the difference is rounding
    x = s.logprob - s.old_logprob
    J = np.exp(x) * A - coef * top * np.abs(x)
    return token_mean(s, J, np.exp(x) * A - coef * top * np.sign(x) * (np.abs(x) > 1e-5))
