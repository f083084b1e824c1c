"""STAPO (2602.15620) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def stapo(mask, reward, group, old_logprob, logprob, scored_logprob, scored_entropy,
    *, prob=0.002, quantile=0.75, low=0.2, high=0.28,
):  # fmt: skip
    """`scored_logprob`, `scored_entropy` [N, T]: of the policy that tells which tokens are spurious."""
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

    # spurious: rare tokens of praised responses whose entropy is below the quantile (nearest rank) of such tokens
    spurious = mask & (A > 0) & (np.exp(scored_logprob) < prob)
    if spurious.any():
        H = np.sort(scored_entropy[spurious])
        spurious &= scored_entropy < H[round(quantile * (len(H) - 1))]

    # mean over the tokens that remain: the spurious leave the denominator too
    keep = mask & ~spurious
    share = keep / keep.sum()
    return -(share * J).sum(), -share * dJ
