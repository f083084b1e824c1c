"""REINFORCE++-baseline (2501.03262) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def reinforce_pp_baseline(mask, reward, group, old_logprob, logprob, ref_logprob=None, *, low=0.2, high=0.2, beta=0.0):
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # R_i - mean_g
    A = np.zeros(mask.shape)
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        A[rows] = (reward[rows] - reward[rows].mean())[:, None]

    # A <- (A - mean) / sqrt(var + 1e-8) over the tokens of the batch, var with n - 1
    n = mask.sum()
    mean = A[mask].sum() / n
    A = (A - mean) / np.sqrt(((A[mask] - mean) ** 2).sum() / (n - 1) + 1e-8)

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # - β k2, k2 = (log u)² / 2 with u = π_ref / π; ∂k2/∂lp = -log u
    if beta:
        J = J - beta * (ref_logprob - logprob) ** 2 / 2
        dJ = dJ + beta * (ref_logprob - logprob)

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
