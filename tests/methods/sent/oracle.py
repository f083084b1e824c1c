"""SENT (2512.04359): loss and hand-derived gradient, NumPy float64."""

import numpy as np

from oracle_support.prelude import crossed, group_advantage, k3, ratio, token_mean

CASES = crossed(
    [
        {},
        {"fraction": 0.1, "coef": 0.3},
        {"fraction": 0.9, "low_entropy": 0.5, "strong": 3.0, "weak": 0.1, "beta": 0.2},
    ],
    entropy=("old", "current"),
)


def sent(s, *, entropy="current", fraction=2e-4, low_entropy=0.8, strong=2.0, weak=0.5, coef=1.0, beta=0.0):
    # the calm tokens: entropy at most the k-th smallest, k = int(low_entropy n)
    H = s.old_entropy if entropy == "old" else s.entropy
    threshold = np.sort(H[s.mask])[max(1, int(low_entropy * s.mask.sum())) - 1]
    calm = np.flatnonzero(s.mask & (threshold >= H))

    # cov_t = (A_t - mean A)(lp_t - mean lp), the means over these tokens
    A = group_advantage(s) + np.zeros(s.mask.shape)
    a, lp = A.flat[calm], s.logprob.flat[calm]
    cov = (a - a.mean()) * (lp - lp.mean())

    # the j of largest covariance pay strong · coef |lp - lp_old|, the j of smallest weak · coef
    j, order, price = max(1, int(fraction * len(calm))), np.argsort(cov, kind="stable"), np.zeros(s.mask.shape)
    price.flat[calm[order[-j:]]] = strong * coef
    price.flat[calm[order[:j]]] = weak * coef

    # r A without any clip, less the price, flat where the difference is rounding, less β k3
    (r, dr), x, (k, dk) = ratio(s), s.logprob - s.old_logprob, k3(s)
    dJ = dr * A - price * np.sign(x) * (np.abs(x) > 1e-5) - beta * dk
    return token_mean(s, r * A - price * np.abs(x) - beta * k, dJ)
