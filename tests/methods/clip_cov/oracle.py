"""Clip-Cov (2505.22617) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def clip_cov(mask, reward, group, old_logprob, logprob, selected, *, low=1.0, high=1.0):
    """`selected` [N, T] bool: the tokens that the random draw took (its law is `eligible`, below)."""
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # the selected tokens lose their surrogate, the denominator keeps them
    share = mask / mask.sum()
    return -(share * ~selected * J).sum(), -share * ~selected * dJ


def eligible(mask, advantage, old_logprob, logprob, *, low=1.0, high=1.0, cov_low=1.0, cov_high=5.0):
    """The tokens that the draw takes max(int(fraction · n), 1) of: not clipped, and cov_low < cov < cov_high."""
    A = advantage
    cov = (A - A[mask].mean()) * (logprob - logprob[mask].mean())
    r = np.exp(logprob - old_logprob)
    clipped = np.clip(r, 1 - low, 1 + high) * A < r * A
    return mask & ~clipped & (cov_low < cov) & (cov < cov_high)
