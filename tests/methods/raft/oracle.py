"""RAFT (2304.06767) as one straight line: loss and hand-derived gradient, NumPy float64."""

import numpy as np


def raft(mask, reward, group, logprob):
    # likelihood of the responses whose reward is positive, weighted by it: A = max(R, 0), J = A lp
    A = np.maximum(reward, 0)[:, None]
    J = A * logprob
    dJ = A

    # mean over all tokens of the batch
    share = mask / mask.sum()
    return -(share * J).sum(), -share * dJ
