"""REINFORCE++ (2501.03262) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def reinforce_pp(mask, reward, group, old_logprob, logprob, ref_logprob=None, *, low=0.2, high=0.2, beta=0.0):
    # the return at t: the response's reward - β Σ_{s >= t} (lp_old - lp_ref)_s
    A = reward[:, None] + np.zeros(mask.shape)
    if beta:
        k1 = np.where(mask, old_logprob - ref_logprob, 0)
        A = A - beta * k1[:, ::-1].cumsum(1)[:, ::-1]

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

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
