"""MaxRL (2602.02710) as one straight line: loss and hand-derived gradient, NumPy float64."""

from math import comb

import numpy as np


def maxrl(
    mask, reward, group, old_logprob, logprob,
    *, baseline="practical", order=None, low=0.2, high=0.2, dual=3.0,
):  # fmt: skip
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    A = np.zeros((len(reward), 1))
    for i in np.flatnonzero(alive):
        R = reward[alive & (group == group[i])]
        G, mu = len(R), R.mean()
        if G == 1:
            continue  # nothing to be compared with: 0
        if order is not None:
            # log p = -Σ_k (1 - p)^k / k up to k = order. The first term is told by the correct rollouts; (1 - p)^k is
            # the share of the k-subsets that are all wrong, C(f, k) / C(G, k), of which the wrong rollout i is in
            # C(f-1, k-1): -(1/k) C(f-1, k-1) / C(G, k) = -(1/G) C(f-1, k-1) / C(G-1, k-1), here G times that
            f = int((R <= 0).sum())
            fail = sum(comb(f - 1, k - 1) / comb(G - 1, k - 1) for k in range(2, min(order, f) + 1))
            A[i, 0] = 1.0 if reward[i] > 0 else -fail
        elif baseline == "practical":
            # (R - mu) / mu, nothing from a group without success
            A[i, 0] = (reward[i] - mu) / (mu + 1e-6) if mu != 0 else 0.0
        elif baseline == "kept":
            # (R - mu) / mu, and its limit for R = 0 where nobody succeeded
            A[i, 0] = (reward[i] - mu) / (mu + 1e-6) if mu != 0 else -1.0
        else:
            # R / mu: only the successes
            A[i, 0] = reward[i] / (mu + 1e-6) if mu != 0 else 0.0

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # dual clip: for A < 0 the objective is never below dual · A
    if dual is not None:
        floor = (A < 0) & (r > dual)
        J = np.where(floor, dual * A, J)
        dJ = np.where(floor, 0, dJ)

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
