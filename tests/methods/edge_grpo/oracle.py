"""EDGE-GRPO (2507.21848) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def edge_grpo(mask, reward, group, old_logprob, logprob, old_entropy, *, low=0.2, high=0.2, eps=1e-6):
    length = mask.sum(1, keepdims=True)  # |o_i|
    alive = length[:, 0] > 0  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + eps), std with G - 1; 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + eps)

    # A_i <- A_i mean_j Hbar_j / Hbar_i, Hbar the mean entropy of a response's tokens, j over the batch
    Hbar = (mask * old_entropy).sum(1, keepdims=True) / np.maximum(length, 1)
    Hbar = np.maximum(Hbar, 1e-8)
    A = A * Hbar[alive].mean() / Hbar

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # mean over the tokens of a response, then over the responses
    share = mask / (alive.sum() * np.maximum(length, 1))
    return -(share * J).sum(), -share * dJ
