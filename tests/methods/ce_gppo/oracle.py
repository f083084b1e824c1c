"""CE-GPPO (2509.20712) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def ce_gppo(mask, reward, group, old_logprob, logprob, *, low=0.2, high=0.2, beta1=0.75, beta2=1.0, dual=None):
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

    # r A inside the clip, and on its harmless side
    J = r * A
    dJ = A * dr

    # a clipped token keeps a gradient of constant size: A < 0, r < 1 - low: beta1 (1 - low) / sg[r] · r A
    below = (A < 0) & (r < 1 - low)
    J = np.where(below, beta1 * (1 - low) * A, J)
    dJ = np.where(below, beta1 * (1 - low) * A * dr / r, dJ)

    # A > 0, r > 1 + high: beta2 (1 + high) / sg[r] · r A
    above = (A > 0) & (r > 1 + high)
    J = np.where(above, beta2 * (1 + high) * A, J)
    dJ = np.where(above, beta2 * (1 + high) * A * dr / r, dJ)

    # the authors' code: A < 0: max(J, dual A), flat where that binds
    if dual is not None:
        cut = (A < 0) & (dual * A > J)
        J = np.where(cut, dual * A, J)
        dJ = np.where(cut, 0, dJ)

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
