"""SPO-chain (2505.23564) as one straight line: loss and hand-derived gradient, NumPy float64, from the gain."""

import numpy as np


def spo(mask, old_logprob, logprob, gain, *, below=0.9, low=0.2, high=0.2):
    kept = mask & (np.exp(old_logprob) < below)

    # whiten over the improbable tokens: (x - mean) / sqrt(var + 1e-8), var with ddof 1; the others get 0
    A = np.zeros(mask.shape)
    if kept.any():
        x = gain[kept]
        A[kept] = (x - x.mean()) / np.sqrt((x.var(ddof=1) if len(x) > 1 else 0) + 1e-8)

    # r_t = exp(lp - lp_old), the exponent kept within ±20 (flat outside)
    d = logprob - old_logprob
    r = np.exp(np.clip(d, -20, 20))
    dr = np.where(np.abs(d) <= 20, r, 0)

    # min(r A, clip(r, 1 - low, 1 + high) A), in the mean over the improbable tokens
    J = np.minimum(r * A, np.clip(r, 1 - low, 1 + high) * A)
    dJ = np.where(A > 0, r <= 1 + high, r >= 1 - low) * A * dr
    share = kept / max(1, kept.sum())
    return -(share * J).sum(), -share * dJ
