"""Archer (2507.15778) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def archer(mask, reward, group, old_logprob, logprob, ref_logprob, scored_entropy,
    *, low_clip=0.2, high_clip=0.5, kl=1e-3, quantile=0.8, dual=None,
):  # fmt: skip
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

    # high-entropy tokens of a response: above its own quantile (nearest rank)
    top = np.zeros(mask.shape, bool)
    for i in np.flatnonzero(alive):
        H = scored_entropy[i, mask[i]]
        top[i, mask[i]] = np.sort(H)[round(quantile * (len(H) - 1))] < H
    low = high = np.where(top, high_clip, low_clip)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr

    # dual clip: for A < 0 the objective is never below dual · A
    if dual is not None:
        floor = (A < 0) & (r > dual)
        J = np.where(floor, dual * A, J)
        dJ = np.where(floor, 0, dJ)

    # - kl · k3 on the low-entropy tokens, k3 = u - log u - 1 with u = π_ref / π; ∂k3/∂lp = 1 - u
    u = np.exp(ref_logprob - logprob)
    J = J - kl * ~top * (u - np.log(u) - 1)
    dJ = dJ - kl * ~top * (1 - u)

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
