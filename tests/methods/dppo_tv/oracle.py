"""DPPO with binary total variation (2602.04879) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def dppo_tv(mask, reward, group, logprob, anchor_logprob, *, threshold=0.15, cap=20.0):
    """`anchor_logprob` [N, T]: of the policy that sampled."""
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # the trust region is about probabilities, not their ratio
    p, q = np.exp(logprob), np.exp(anchor_logprob)

    # p may rise by the threshold for A > 0, fall by it for A <= 0
    inside = np.where(A > 0, p - q <= threshold, p - q >= -threshold)

    # sg[min(r, cap)] A lp inside, nothing outside; the denominator keeps every token
    w = inside * np.minimum(np.exp(np.clip(logprob - anchor_logprob, -20, 20)), cap)
    J = w * A * logprob
    dJ = w * A

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
