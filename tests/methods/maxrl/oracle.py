"""MaxRL (2602.02710): loss and hand-derived gradient, NumPy float64."""

from math import comb

import numpy as np

from oracle_support.prelude import clipped, groups, ratio, token_mean

CASES = [
    {}, {"baseline": "kept", "dual": None}, {"baseline": "none"}, {"low": 0.1, "high": 0.4, "dual": 10.0},
    *({"order": order} for order in (1, 2, 3, 50)),
]  # fmt: skip


def batch(s):
    """It is defined for rewards >= 0."""
    return s.but(reward=np.abs(s.reward))


def maxrl(s, *, baseline="practical", order=None, low=0.2, high=0.2, dual=3.0):
    A = np.zeros((len(s.reward), 1))
    for rows in groups(s):
        R = s.reward[rows]
        G, mu = len(R), R.mean()
        if G == 1:
            continue  # nothing to be compared with: 0
        if order is not None:
            # log p = -Σ_k (1 - p)^k / k up to k = order. The first term is told by the correct rollouts; (1 - p)^k is
            # the share of the k-subsets that are all wrong, C(f, k) / C(G, k), of which the wrong rollout i is in
            # C(f-1, k-1): -(1/k) C(f-1, k-1) / C(G, k) = -(1/G) C(f-1, k-1) / C(G-1, k-1), here G times that
            f = int((R <= 0).sum())
            fail = sum(comb(f - 1, k - 1) / comb(G - 1, k - 1) for k in range(2, min(order, f) + 1))
            A[rows, 0] = np.where(R > 0, 1.0, -fail)
        elif mu == 0:
            # nothing from a group without success, or "kept": the limit of (R - mu) / mu for R = 0
            A[rows, 0] = -1.0 if baseline == "kept" else 0.0
        else:
            # (R - mu) / mu; without a baseline R / mu: only the successes
            A[rows, 0] = (R - (0 if baseline == "none" else mu)) / (mu + 1e-6)
    return token_mean(s, *clipped(*ratio(s), A, low, high, dual))
