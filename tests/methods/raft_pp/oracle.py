"""RAFT++ (2504.11343) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def raft_pp(mask, reward, group, old_logprob, logprob, *, low=0.2, high=0.2):
    # A = max(R, 0): wrong responses teach nothing
    A = np.maximum(reward, 0)[:, None]

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
