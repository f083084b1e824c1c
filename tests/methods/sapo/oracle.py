"""SAPO (2511.20347) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def sapo(mask, reward, group, old_logprob, logprob, *, tau_pos=1.0, tau_neg=1.05):
    length = mask.sum(1, keepdims=True)  # |o_i|
    alive = length[:, 0] > 0  # a rollout without response tokens counts nowhere

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

    # A f(r), f(r) = (4/τ) σ(τ (r - 1)), τ by the sign of A; f' = 4 σ (1 - σ) is 1 at r = 1
    tau = np.where(A > 0, tau_pos, tau_neg)
    sigma = 1 / (1 + np.exp(-tau * (r - 1)))
    J = A * 4 / tau * sigma
    dJ = A * 4 * sigma * (1 - sigma) * dr

    # mean over the tokens of a response, then over the responses
    share = mask / (alive.sum() * np.maximum(length, 1))
    return -(share * J).sum(), -share * dJ
