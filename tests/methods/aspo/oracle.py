"""ASPO (2510.06062) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def aspo(mask, reward, group, old_logprob, logprob, scored_entropy,
    *, low_eps=0.2, high_eps=0.4, quantile=0.8, dual=3.0,
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
    e = np.zeros(mask.shape)
    for i in np.flatnonzero(alive):
        H = scored_entropy[i, mask[i]]
        threshold = np.sort(H)[round(quantile * (len(H) - 1))]
        e[i, mask[i]] = np.where(threshold < H, high_eps, low_eps)

    # A > 0: the ratio is turned over: (r^ / sg[r^]) A / sg[r^] with r^ = min(r, 1 + e), still where r is clipped
    r_up = np.minimum(r, 1 + e)
    J_up = A / r_up
    dJ_up = A / r_up**2 * np.where(r <= 1 + e, dr, 0)
    # soft dual clip: beyond dual the weight stays dual and so does the gradient
    J_up = np.where(1 / r_up > dual, dual * A, J_up)
    dJ_up = np.where(1 / r_up > dual, dual * A, dJ_up)

    # A < 0: max(r, 1 - e) A, still where it is clipped, and softly clipped at dual
    r_down = np.maximum(r, 1 - e)
    J_down = np.where(r_down > dual, dual * A, r_down * A)
    dJ_down = np.where(r_down > dual, dual * A, np.where(r >= 1 - e, dr, 0) * A)

    J = np.where(A > 0, J_up, J_down)
    dJ = np.where(A > 0, dJ_up, dJ_down)

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
