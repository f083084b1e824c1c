"""Dr. GRPO (2503.20783) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def dr_grpo(mask, reward, group, old_logprob, logprob, *, low=0.2, high=0.2, length=None):
    tokens = mask.sum(1)
    alive = tokens > 0  # a rollout without response tokens counts nowhere
    constant = tokens.max() if length is None else length  # the longest response (allowed)

    # A_i = R_i - mean_g: no division by the standard deviation
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        A[rows, 0] = reward[rows] - reward[rows].mean()

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # sum over the tokens of a response divided by a constant, then the mean over the responses
    share = mask / (alive.sum() * constant)
    return -(share * J).sum(), -share * dJ
