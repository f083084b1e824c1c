"""SENT (2512.04359) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def sent(mask, reward, group, old_logprob, logprob, scored_entropy, ref_logprob=None,
    *, fraction=2e-4, low_entropy=0.8, strong=2.0, weak=0.5, coef=1.0, beta=0.0,
):  # fmt: skip
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # the calm tokens: entropy at most the k-th smallest, k = int(low_entropy n)
    threshold = np.sort(scored_entropy[mask])[max(1, int(low_entropy * mask.sum())) - 1]
    calm = np.flatnonzero(mask & (scored_entropy <= threshold))

    # cov_t = (A_t - mean A)(lp_t - mean lp), the means over these tokens
    A = A + np.zeros(mask.shape)
    cov = (A.flat[calm] - A.flat[calm].mean()) * (logprob.flat[calm] - logprob.flat[calm].mean())

    # the j of largest covariance pay strong · coef |lp - lp_old|, the j of smallest weak · coef
    j = max(1, int(fraction * len(calm)))
    order = np.argsort(cov, kind="stable")
    price = np.zeros(mask.shape)
    price.flat[calm[order[-j:]]] = strong * coef
    price.flat[calm[order[:j]]] = weak * coef

    # r A without any clip
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    J = r * A - price * np.abs(x)
    dJ = np.where(np.abs(x) <= 20, r, 0) * A - price * np.sign(x) * (np.abs(x) > 1e-5)  # flat where x is rounding

    # - β k3, k3 = u - log u - 1 with u = π_ref / π; ∂k3/∂lp = 1 - u
    if beta:
        u = np.exp(ref_logprob - logprob)
        J = J - beta * (u - np.log(u) - 1)
        dJ = dJ - beta * (1 - u)

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
