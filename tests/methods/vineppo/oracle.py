"""VinePPO (2410.01679) as one straight line, from the gain of segments: loss and its gradient, NumPy float64."""

import numpy as np


def vineppo(mask, old_logprob, logprob, gain, *, low=0.2, high=0.2):
    # whiten over all tokens: (x - mean) / sqrt(var + 1e-8), var with ddof 1
    x = gain[mask]
    A = np.zeros(mask.shape)
    A[mask] = (x - x.mean()) / np.sqrt((x.var(ddof=1) if len(x) > 1 else 0) + 1e-8)

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    d = logprob - old_logprob
    r = np.exp(np.clip(d, -20, 20))
    dr = np.where(np.abs(d) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A): the gradient lives where the clip does not bind against A
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
