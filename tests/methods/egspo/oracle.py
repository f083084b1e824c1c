"""EGSPO (2602.03309) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def egspo(
    mask, reward, group, old_logprob, logprob, old_entropy,
    *, quantile=0.8, attenuation=0.5, curve="constant", low=0.2, high=0.28,
):  # fmt: skip
    alive = mask.any(1)  # a rollout without response tokens counts nowhere

    # A_i = (R_i - mean_g) / (std_g + 1e-6), std with G - 1; 0 where a group's rewards are all equal
    A = np.zeros((len(reward), 1))
    for g in np.unique(group[alive]):
        rows = alive & (group == g)
        R = reward[rows]
        if R.min() < R.max():
            A[rows, 0] = (R - R.mean()) / (R.std(ddof=1) + 1e-6)

    # w = 1 where the entropy reaches the batch's quantile (nearest rank), attenuated below it: by a constant, or by
    # sg[4 p (1 - p)] of it, largest where the policy is undecided about the token, p = exp(lp)
    ranked = np.sort(old_entropy[mask])
    p = np.exp(logprob)
    attenuated = attenuation * (4 * p * (1 - p) if curve == "chord" else np.ones(mask.shape))
    w = np.where(old_entropy >= ranked[round(quantile * (len(ranked) - 1))], 1.0, attenuated)

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    x = logprob - old_logprob
    r = np.exp(np.clip(x, -20, 20))
    dr = np.where(np.abs(x) <= 20, r, 0)

    # w min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = w * np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = w * np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # mean over all tokens of the batch, attenuated or not
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
